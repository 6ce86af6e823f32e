"""CRDs in the style of projects for serverless platforms and autoscalers."""

from __future__ import annotations

from .blocks import AGE, READY, TIME, container, define, pod_template
from .schemas import anything, f, mapping, quantity

_DEST = {
    "ref": {"apiVersion": "v1", "kind!": "Service", "name!": "a"},
    "uri": "http://x.example.com",
    "CACerts": "c",
}
_KNATIVE_STATUS = anything(
    {"conditions": [{"type": "Ready", "status": "True"}], "observedGeneration": 1},
    properties={
        "observedGeneration": {"type": "integer", "format": "int64"},
        "url": {"type": "string"},
        "conditions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["status", "type"],
                "properties": {
                    "type": {"type": "string"},
                    "status": {"type": "string"},
                    "lastTransitionTime": {"type": "string"},
                },
            },
        },
    },
)
_KN = ("URL string .status.url", READY, 'Reason string .status.conditions[?(@.type=="Ready")].reason')

CASES = [
    define(
        "serving",
        "ServingService",
        anything(
            {"template": {"spec": {"containers": [{"image": "x"}]}}},
            properties={
                "template": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {
                        "metadata": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                            "properties": {
                                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                                "name": {"type": "string"},
                            },
                        },
                        "spec": {
                            "type": "object",
                            "required": ["containers"],
                            "properties": {
                                "containers": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "properties": {
                                            "name": {"type": "string"},
                                            "image": {"type": "string"},
                                        },
                                    },
                                },
                                "timeoutSeconds": {"type": "integer", "format": "int64"},
                                "containerConcurrency": {"type": "integer", "format": "int64"},
                            },
                        },
                    },
                },
                "traffic": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "percent": {"type": "integer", "format": "int64"},
                            "tag": {"type": "string"},
                            "latestRevision": {"type": "boolean"},
                        },
                    },
                },
            },
        ),
        status=_KNATIVE_STATUS,
        columns=_KN,
        names={"shortNames": ["styleksvc"], "categories": ["style-knative"]},
    ),
    define(
        "serving",
        "Revision",
        {
            "containerConcurrency": f(0, format="int64"),
            "containers!": [container()],
            "timeoutSeconds": f(300, format="int64"),
            "volumes": [
                {
                    "name!": "a",
                    "projected": {
                        "sources": [{"secret": {"name": "s", "items": [{"key!": "a", "path!": "b"}]}}],
                        "defaultMode": f(420, format="int32"),
                    },
                }
            ],
            "enableServiceLinks": False,
        },
        status=_KNATIVE_STATUS,
        columns=(
            "Generation string .metadata.labels['serving\\.example\\.com/generation']",
            'Ready string .status.conditions[?(@.type=="Ready")].status',
            "Replicas integer .status.actualReplicas",
        ),
    ),
    define(
        "serving",
        "ServingRoute",
        {
            "traffic": [
                {
                    "configurationName": "a",
                    "percent": f(100, format="int64"),
                    "tag": "x",
                    "latestRevision": True,
                }
            ]
        },
        status=_KNATIVE_STATUS,
        columns=_KN,
    ),
    define(
        "eventing",
        "Broker",
        {
            "config": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "namespace": "n"},
            "delivery": anything(
                {"retry": 3},
                properties={
                    "backoffPolicy": {"type": "string"},
                    "deadLetterSink": {"type": "object", "properties": {"uri": {"type": "string"}}},
                    "retry": {"type": "integer", "format": "int32"},
                },
            ),
        },
        status=_KNATIVE_STATUS,
        columns=_KN,
        names={"categories": ["style-eventing"]},
    ),
    define(
        "eventing",
        "EventTrigger",
        {
            "broker": "default",
            "filter": {"attributes": mapping({"type": "x"})},
            "filters": [anything({"exact": {"a": "b"}})],
            "subscriber!": _DEST,
            "delivery": {"retry": f(3, format="int32"), "deadLetterSink": _DEST, "backoffDelay": "PT1S"},
        },
        status=_KNATIVE_STATUS,
        columns=("Broker string .spec.broker", "Subscriber_URI string .status.subscriberUri", AGE),
    ),
    define(
        "eventing",
        "Channel",
        {
            "channelTemplate": anything({"apiVersion": "v1", "kind": "InMemory", "spec": {"a": 1}}),
            "subscribers": [
                {
                    "uid": "a",
                    "generation": f(1, format="int64"),
                    "subscriberUri": "x",
                    "delivery": anything({}),
                }
            ],
        },
        status=_KNATIVE_STATUS,
        columns=_KN,
    ),
    define(
        "scaling",
        "ScaledObject",
        {
            "scaleTargetRef!": {"name!": "web", "kind": "Deployment", "envSourceContainerName": "c"},
            "minReplicaCount": f(1, format="int32"),
            "maxReplicaCount": f(10, format="int32"),
            "pollingInterval": f(30, format="int32"),
            "triggers!": [
                {
                    "type!": "cron",
                    "metadata!": mapping({"start": "x"}),
                    "name": "a",
                    "metricType": "AverageValue",
                    "authenticationRef": {"name!": "t"},
                    "useCachedMetrics": True,
                }
            ],
            "fallback": {
                "failureThreshold!": f(3, format="int32"),
                "replicas!": f(6, format="int32"),
                "behavior": f("static", default="static", enum=["static", "currentReplicas"]),
            },
            "advanced": {
                "restoreToOriginalReplicaCount": True,
                "horizontalPodAutoscalerConfig": {
                    "behavior": {
                        "scaleDown": {
                            "policies": f(
                                [
                                    {
                                        "type!": "Percent",
                                        "value!": f(10, format="int32"),
                                        "periodSeconds!": f(15, format="int32"),
                                    }
                                ],
                                list_type="atomic",
                            ),
                            "stabilizationWindowSeconds": f(300, format="int32"),
                            "tolerance": quantity("100m"),
                        }
                    }
                },
            },
        },
        status={
            "scaleTargetKind": "x",
            "conditions": [{"type!": "Ready", "status!": "True"}],
            "health": f({"a": {"numberOfFailures": f(1, format="int32"), "status": "Happy"}}, is_map=True),
            "lastActiveTime": f(TIME, format="date-time"),
            "hpaName": "h",
        },
        columns=(
            "ScaleTargetKind string .status.scaleTargetKind",
            "ScaleTargetName string .spec.scaleTargetRef.name",
            "Min integer .spec.minReplicaCount",
            "Max integer .spec.maxReplicaCount",
            'Ready string .status.conditions[?(@.type=="Ready")].status',
            AGE,
        ),
        version="v1alpha1",
        names={"shortNames": ["styleso"]},
    ),
    define(
        "scaling",
        "ScaledJob",
        {
            "jobTargetRef!": {
                "template!": pod_template(),
                "backoffLimit": f(1, format="int32"),
                "completionMode": "NonIndexed",
                "podFailurePolicy": {
                    "rules!": f(
                        [
                            {
                                "action!": "Ignore",
                                "onExitCodes": {
                                    "operator!": "In",
                                    "values!": f([f(1, format="int32")], list_type="set"),
                                },
                            }
                        ],
                        list_type="atomic",
                    )
                },
            },
            "triggers!": [{"type!": "x", "metadata!": mapping({"a": "b"})}],
            "rollout": {"strategy": "gradual"},
            "scalingStrategy": {"multipleScalersCalculation": "max", "pendingPodConditions": ["a"]},
        },
        status={"Paused": "x", "conditions": [{"type!": "Ready", "status!": "True"}]},
        columns=("Max integer .spec.maxReplicaCount", AGE),
        version="v1alpha1",
    ),
    define(
        "scaling",
        "TriggerAuthentication",
        {
            "secretTargetRef": [{"parameter!": "p", "name!": "s", "key!": "k"}],
            "env": [{"parameter!": "a", "name!": "b"}],
            "podIdentity": f(
                {
                    "provider!": f("aws", enum=["azure-workload", "gcp", "aws", "none"]),
                    "identityId": "x",
                    "roleArn": "r",
                }
            ),
            "hashiCorpVault?": {
                "address!": "a",
                "authentication!": "token",
                "secrets!": [{"key!": "a", "parameter!": "b", "path!": "c", "pkiData": {"ttl": "1h"}}],
            },
        },
        status={"scaledobjects": "a"},
        columns=(
            "PodIdentity string .spec.podIdentity.provider",
            "Secret string .spec.secretTargetRef[*].name",
            AGE,
        ),
        version="v1alpha1",
    ),
]
