"""CRDs in the style of projects for pipelines."""

from __future__ import annotations

from .blocks import TIME, container, define, environment, labels, resources, status
from .schemas import anything, duration, f, mapping, untyped

_STEP = {
    "name!": "build",
    "image": "registry.example.com/b:1",
    "script": "make",
    "env": environment(),
    "computeResources": resources(),
    "onError": f("continue"),
    "timeout": "5m",
    "when": f(
        [{"input": "a", "operator": "in", "values": f(["a"], list_type="atomic"), "cel": "x"}], type="array"
    ),
    "volumeMounts": f([{"mountPath!": "/x", "name!": "v"}], list_type="atomic"),
}
_PARAMS = f(
    [
        {
            "name!": "url",
            "type": "string",
            "default": untyped("x"),
            "enum": f(["a"]),
            "properties": f({"a": {"type": "string"}}, is_map=True),
        }
    ],
    list_type="atomic",
)
_GIVEN = f([{"name!": "url", "value!": untyped(["a", "b"])}], list_type="atomic")
_TASK = {
    "params": _PARAMS,
    "steps": f([_STEP], list_type="atomic"),
    "results": f(
        [{"name!": "digest", "type": "string", "value": untyped("x"), "description": "d"}], list_type="atomic"
    ),
    "workspaces": f([{"name!": "src", "optional": True, "mountPath": "/w"}], list_type="atomic"),
    "sidecars": f([container("side")], list_type="atomic"),
    "stepTemplate": {
        "env": f([{"name!": "A", "value": "b"}], list_type="atomic"),
        "securityContext": {"runAsUser": f(1, format="int64")},
    },
    "volumes": untyped([{"name": "v", "emptyDir": {}}]),
}

CASES = [
    define(
        "pipelines",
        "Task",
        _TASK,
        names={"categories": ["style-pipelines"]},
        other_versions=({"name": "v1beta1"},),
    ),
    define(
        "pipelines",
        "TaskRun",
        {
            "taskRef": {"name": "t", "kind": "Task", "params": _GIVEN, "resolver": "git"},
            "taskSpec?": _TASK,
            "params": _GIVEN,
            "serviceAccountName": f("", default=""),
            "timeout": "1h",
            "retries": 1,
            "podTemplate": anything({"nodeSelector": {}}),
            "workspaces": f(
                [
                    {
                        "name!": "src",
                        "subPath": "x",
                        "volumeClaimTemplate": anything({"spec": {}}),
                        "emptyDir?": anything({}),
                    }
                ],
                list_type="atomic",
            ),
            "statusMessage": "m",
        },
        status={
            "annotations": mapping({"a": "b"}),
            "conditions": [
                {"type!": "Succeeded", "status!": "True", "severity": "Error", "lastTransitionTime": "x"}
            ],
            "completionTime": f(TIME, format="date-time"),
            "steps": f(
                [
                    {
                        "container": "a",
                        "terminated": {
                            "exitCode!": f(0, format="int32"),
                            "startedAt": f(TIME, format="date-time"),
                        },
                    }
                ],
                list_type="atomic",
            ),
            "podName": "p",
        },
        columns=(
            'Succeeded string .status.conditions[?(@.type=="Succeeded")].status',
            'Reason string .status.conditions[?(@.type=="Succeeded")].reason',
            "StartTime date .status.startTime",
            "CompletionTime date .status.completionTime",
        ),
        names={"shortNames": ["styletr"], "categories": ["style-pipelines"]},
    ),
    define(
        "pipelines",
        "Pipeline",
        {
            "params": _PARAMS,
            "tasks": f(
                [
                    {
                        "name": "build",
                        "taskRef": {"name": "t"},
                        "runAfter": f(["a"], list_type="atomic"),
                        "params": _GIVEN,
                        "matrix": {
                            "params": _GIVEN,
                            "include": f([{"name": "a", "params": _GIVEN}], list_type="atomic"),
                        },
                        "when": [{"input": "a", "operator": "in", "values": f(["b"], list_type="atomic")}],
                        "timeout": "1h",
                        "taskSpec?": {"spec": anything({}), "metadata": {"labels": labels()}},
                    }
                ],
                list_type="atomic",
            ),
            "finally": f([{"name": "end", "taskRef": {"name": "t"}}], list_type="atomic"),
            "results": f([{"name!": "a", "value!": untyped("x")}], list_type="atomic"),
            "workspaces": f([{"name!": "w"}], list_type="atomic"),
        },
        names={"categories": ["style-pipelines"]},
    ),
    define(
        "pipelines",
        "PipelineRun",
        {
            "pipelineRef": {"name": "p", "resolver": "r"},
            "params": _GIVEN,
            "timeouts": {"pipeline": duration("1h"), "tasks": duration("30m")},
            "taskRunSpecs": f(
                [
                    {
                        "pipelineTaskName": "a",
                        "computeResources": resources(),
                        "metadata": {"annotations": mapping({"a": "b"})},
                    }
                ],
                list_type="atomic",
            ),
            "taskRunTemplate": {"serviceAccountName": "x", "podTemplate": anything({"a": 1})},
            "status": f("Cancelled"),
        },
        status=anything({"conditions": [{"type": "Succeeded"}]}),
        columns=(
            'Succeeded string .status.conditions[?(@.type=="Succeeded")].status',
            "StartTime date .status.startTime",
        ),
        names={"shortNames": ["stylepr"], "categories": ["style-pipelines"]},
    ),
    define(
        "pipelines",
        "EventListener",
        {
            "serviceAccountName": "x",
            "triggers": [
                {
                    "name": "a",
                    "bindings": [{"name": "b", "kind": f("TriggerBinding"), "ref": "r", "value": "v"}],
                    "interceptors": [
                        {
                            "name": "cel",
                            "params": [{"name!": "a", "value!": untyped(True)}],
                            "ref!": {"name": "cel", "kind": f("ClusterInterceptor")},
                        }
                    ],
                    "template!": {
                        "ref": "t",
                        "spec?": {
                            "resourcetemplates": [anything({"a": 1}, embedded=True)],
                            "params": [{"name!": "a", "default": "b"}],
                        },
                    },
                }
            ],
            "resources": {
                "kubernetesResource": {
                    "replicas": f(1, format="int32"),
                    "spec": {"template": anything({"a": 1})},
                }
            },
        },
        status=status(address={"url": "x"}),
        version="v1beta1",
    ),
]
