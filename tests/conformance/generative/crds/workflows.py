"""CRDs in the style of projects for workflows and rollouts."""

from __future__ import annotations

from .blocks import (
    AGE,
    TIME,
    claim_template,
    container,
    define,
    label_selector,
    labels,
    pod_template,
    secret_key,
)
from .schemas import anything, f, int_or_string, mapping, untyped

_ARGUMENTS = {
    "parameters": f(
        [
            {
                "name!": "size",
                "value": "1",
                "enum": ["1", "2"],
                "default": "1",
                "valueFrom?": {"path": "/x", "default": "d"},
            }
        ],
        keys=["name"],
    ),
    "artifacts": f(
        [
            {
                "name!": "data",
                "path": "/data",
                "mode": f(420, format="int32", minimum=0, maximum=511),
                "s3": {"bucket": "b", "key": "k", "insecure": True},
                "archive": {"none": anything({})},
            }
        ],
        keys=["name"],
    ),
}
_TEMPLATE = {
    "name!": "main",
    "container": container(),
    "inputs": _ARGUMENTS,
    "steps": [f([{"name": "a", "template": "t", "when": "x", "arguments": _ARGUMENTS}], type="array")],
    "dag?": {"tasks!": f([{"name!": "a", "dependencies": ["b"], "template": "t"}], keys=["name"])},
    "retryStrategy": {"limit": int_or_string(3), "backoff": {"duration": "1m", "factor": int_or_string("2")}},
    "suspend?": {"duration": "10"},
    "activeDeadlineSeconds": int_or_string(10),
    "metadata": {"labels": labels()},
}
_WORKFLOW = {
    "entrypoint": "main",
    "arguments": _ARGUMENTS,
    "templates": f([_TEMPLATE], keys=["name"]),
    "parallelism": f(2, format="int64"),
    "ttlStrategy": {"secondsAfterCompletion": f(60, format="int32")},
    "volumeClaimTemplates": [claim_template()],
    "podGC": {"strategy": "OnPodCompletion", "labelSelector": label_selector(), "deleteDelayDuration": "5s"},
    "serviceAccountName": "x",
    "hooks": f({"exit": {"template": "t", "expression": "e"}}, is_map=True),
}
_METRIC = {
    "name!": "success",
    "interval": "1m",
    "count": int_or_string(5),
    "failureLimit": int_or_string("2"),
    "successCondition": "result > 0.9",
    "provider!": {
        "prometheus": {"address": "p", "query": "up", "timeout": f(40, format="int64")},
        "job?": {"spec": untyped({"a": 1})},
        "plugin": anything({"x": {"a": 1}}),
    },
}

CASES = [
    define(
        "flows",
        "Workflow",
        _WORKFLOW,
        status=anything({"phase": "Running", "nodes": {"a": {"id": "a"}}}),
        columns=(
            "Status string .status.phase",
            "Age date .status.startedAt",
            "Message string .status.message 1",
        ),
        version="v1alpha1",
        names={"shortNames": ["stylewf"]},
    ),
    define(
        "flows",
        "WorkflowTemplate",
        _WORKFLOW,
        version="v1alpha1",
        names={"shortNames": ["stylewftmpl"]},
        samples=({"spec": {}}, {"spec": {"templates": [{"name": "a"}, {"name": "a"}]}}),
    ),
    define(
        "flows",
        "CronWorkflow",
        {
            "schedules!": f(["* * * * *"], minItems=1),
            "timezone": "UTC",
            "suspend": False,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": f(0, format="int64"),
            "workflowSpec!": _WORKFLOW,
            "workflowMetadata": {"labels": labels()},
        },
        status={
            "active": [{"kind": "Workflow", "name": "a", "fieldPath": "x"}],
            "lastScheduledTime": f(TIME, format="date-time"),
            "phase": "Active",
        },
        version="v1alpha1",
        columns=(
            "Schedules string .spec.schedules",
            "Suspend boolean .spec.suspend",
            "Last date .status.lastScheduledTime",
        ),
    ),
    define(
        "flows",
        "EventSource",
        {
            "webhook": f(
                {"a": {"endpoint!": "/x", "method!": "POST", "port!": "12000", "authSecret": secret_key()}},
                is_map=True,
            ),
            "calendar": f(
                {"b": {"interval": "10s", "exclusionDates": ["x"], "metadata": mapping({"a": "b"})}},
                is_map=True,
            ),
            "template": {"container": container(), "metadata": {"labels": labels()}},
            "replicas": f(1, format="int32"),
        },
        status=anything({"conditions": []}),
        version="v1alpha1",
    ),
    define(
        "flows",
        "Sensor",
        anything(
            {"dependencies": [{"name": "a"}], "triggers": [{"template": {"name": "t"}}]},
            properties={
                "replicas": {"type": "integer", "format": "int32"},
                "revisionHistoryLimit": {"type": "integer", "default": 3},
            },
        ),
        status=anything({"conditions": []}),
        version="v1alpha1",
    ),
    define(
        "rollouts",
        "Rollout",
        {
            "replicas": f(3, format="int32"),
            "selector": label_selector(),
            "template": pod_template(),
            "strategy": {
                "canary": {
                    "maxSurge": int_or_string("25%"),
                    "maxUnavailable": int_or_string(1),
                    "steps": [
                        {"setWeight": f(20, format="int32"), "pause?": {"duration": int_or_string(10)}},
                        {"pause": {"duration": "1h"}},
                    ],
                    "trafficRouting": {
                        "nginx": {"stableIngress": "i", "additionalIngressAnnotations": mapping({"a": "b"})}
                    },
                    "analysis": {
                        "templates": [{"templateName": "t", "clusterScope": True}],
                        "args": [{"name!": "a", "value": "b"}],
                    },
                },
                "blueGreen?": {
                    "activeService!": "a",
                    "autoPromotionEnabled": True,
                    "previewReplicaCount": f(1, format="int32"),
                },
            },
            "revisionHistoryLimit": f(5, format="int32"),
            "workloadRef?": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
            "paused": False,
        },
        status={
            "HPAReplicas": f(1, format="int32"),
            "selector": "a=b",
            "replicas": f(1, format="int32"),
            "phase": "Healthy",
            "pauseConditions": [{"reason!": "r", "startTime!": f(TIME, format="date-time")}],
            "canary": {"weights": {"canary!": {"weight!": f(1, format="int32")}, "verified": True}},
            "conditions": [
                {
                    "type!": "Available",
                    "status!": "True",
                    "lastUpdateTime!": f(TIME, format="date-time"),
                    "message!": "m",
                    "reason!": "r",
                }
            ],
        },
        scale=(".spec.replicas", ".status.HPAReplicas", ".status.selector"),
        columns=(
            "Desired integer .spec.replicas",
            "Current integer .status.replicas",
            "Up-to-date integer .status.updatedReplicas",
            "Available integer .status.availableReplicas",
            AGE,
        ),
        version="v1alpha1",
        names={"shortNames": ["stylero"]},
    ),
    define(
        "rollouts",
        "AnalysisRun",
        {
            "metrics!": [_METRIC],
            "args": [
                {"name!": "a", "value": "b", "valueFrom?": {"secretKeyRef": {"key!": "a", "name!": "b"}}}
            ],
            "terminate": False,
            "ttlStrategy": {"secondsAfterFailure": f(1, format="int32")},
        },
        status={
            "phase!": "Running",
            "message": "m",
            "metricResults": [
                {
                    "name!": "a",
                    "phase!": "x",
                    "measurements": [
                        {
                            "value": "1",
                            "startedAt": f(TIME, format="date-time"),
                            "metadata": mapping({"a": "b"}),
                        }
                    ],
                    "metadata": mapping({"a": "b"}),
                }
            ],
            "runSummary": {"count": f(1, format="int32")},
        },
        columns=("Status string .status.phase", AGE),
        version="v1alpha1",
    ),
    define(
        "rollouts",
        "AnalysisTemplate",
        {
            "metrics": [_METRIC],
            "args": [{"name!": "a", "value": "b"}],
            "dryRun": [{"metricName!": ".*"}],
            "templates": [{"clusterScope": True, "templateName": "x"}],
        },
        version="v1alpha1",
        columns=(AGE,),
    ),
    define(
        "rollouts",
        "Experiment",
        {
            "templates!": [
                {
                    "name!": "a",
                    "replicas": f(1, format="int32"),
                    "selector!": label_selector(),
                    "template!": pod_template(),
                    "weight": f(5, format="int32"),
                    "service": {"name": "s"},
                }
            ],
            "analyses": [{"name!": "a", "templateName!": "t", "requiredForCompletion": True}],
            "duration": "5m",
            "progressDeadlineSeconds": f(300, format="int32"),
        },
        status={"phase": "x", "templateStatuses": [{"name!": "a", "readyReplicas!": f(1, format="int32")}]},
        columns=("Status string .status.phase", AGE),
        version="v1alpha1",
    ),
]
