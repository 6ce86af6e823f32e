"""CRDs in the style of projects for clusters."""

from __future__ import annotations

from .blocks import AGE, TIME, define, label_selector, labels
from .schemas import f, int_or_string, mapping, untyped

_CAPI_REF = {
    "apiVersion": "a.example.com/v1",
    "kind": "Infra",
    "name": "x",
    "namespace": "n",
    "fieldPath?": "f",
    "uid?": "u",
}
_CAPI_CONDITIONS = [
    {
        "type!": "Ready",
        "status!": "True",
        "lastTransitionTime!": f(TIME, format="date-time"),
        "severity": f("Error", maxLength=32),
        "message": f("m", maxLength=10240, minLength=1),
        "reason": f("r", maxLength=256, minLength=1),
    }
]
_BOOTSTRAP = {"configRef": f(_CAPI_REF, map_type="atomic"), "dataSecretName": "d"}
_MACHINE = {
    "clusterName!": f("c", minLength=1, maxLength=63),
    "bootstrap!": _BOOTSTRAP,
    "infrastructureRef!": f(_CAPI_REF, map_type="atomic"),
    "version": f("v1.36.0", maxLength=256),
    "providerID": "x",
    "nodeDrainTimeout": "10s",
    "failureDomain": f("a", minLength=1),
    "readinessGates": f(
        [{"conditionType!": f("X", minLength=1, maxLength=316)}], keys=["conditionType"], maxItems=32
    ),
}
_TAINT = {
    "key!": f(
        "a",
        minLength=1,
        pattern=r"^([a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9](\.[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$",
    ),
    "effect!": f("NoSchedule", enum=["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    "value": "v",
}

CASES = [
    define(
        "cluster",
        "WorkloadCluster",
        f(
            {
                "clusterNetwork": {
                    "apiServerPort": f(6443, format="int32"),
                    "pods": {
                        "cidrBlocks!": f(
                            [f("192.168.0.0/16", maxLength=43, minLength=1)], maxItems=100, minItems=1
                        )
                    },
                    "serviceDomain": f("cluster.local", maxLength=253),
                },
                "controlPlaneEndpoint": {"host!": f("h", maxLength=512), "port!": f(6443, format="int32")},
                "infrastructureRef": f(_CAPI_REF, map_type="atomic"),
                "paused": False,
                "topology": {
                    "class!": f("c", maxLength=253, minLength=1),
                    "version!": f("v1.36.0", maxLength=256, minLength=1),
                    "controlPlane": {"replicas": f(3, format="int32"), "metadata": {"labels": labels()}},
                    "workers": {
                        "machineDeployments": f(
                            [
                                {
                                    "class!": f("w", maxLength=256, minLength=1),
                                    "name!": f(
                                        "md",
                                        maxLength=63,
                                        minLength=1,
                                        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
                                    ),
                                    "replicas": f(1, format="int32"),
                                    "variables": {
                                        "overrides": f([{"name!": "v", "value!": untyped(1)}], keys=["name"])
                                    },
                                }
                            ],
                            keys=["name"],
                            maxItems=2000,
                        )
                    },
                    "variables": f(
                        [{"name!": f("v", maxLength=256, minLength=1), "value!": untyped({"a": "b"})}],
                        keys=["name"],
                        maxItems=1000,
                    ),
                },
                "availabilityGates": f(
                    [{"conditionType!": f("X", minLength=1, maxLength=316)}],
                    keys=["conditionType"],
                    maxItems=32,
                ),
            }
        ),
        status={
            "conditions": _CAPI_CONDITIONS,
            "failureDomains": f(
                {"a": {"controlPlane": True, "attributes": mapping({"a": "b"})}}, is_map=True
            ),
            "infrastructureReady": f(False, default=False),
            "observedGeneration": f(1, format="int64"),
            "phase": "Provisioned",
        },
        columns=(
            "ClusterClass string .spec.topology.class",
            "Phase string .status.phase",
            "Age date .metadata.creationTimestamp",
            "Version string .spec.topology.version",
        ),
        version="v1beta1",
        names={"shortNames": ["stylecl"], "categories": ["style-cluster-api"]},
        other_versions=({"name": "v1alpha4", "served": False, "deprecated": True},),
    ),
    define(
        "cluster",
        "Machine",
        f(_MACHINE),
        status={
            "conditions": _CAPI_CONDITIONS,
            "addresses": [
                {
                    "type!": f("InternalIP", enum=["Hostname", "ExternalIP", "InternalIP"]),
                    "address!": f("a", minLength=1, maxLength=256),
                }
            ],
            "bootstrapReady": f(False, default=False),
            "nodeRef": f(_CAPI_REF, map_type="atomic"),
            "phase": f("Running", enum=["Pending", "Provisioning", "Running", "Deleting", "Failed"]),
        },
        columns=(
            "Cluster string .spec.clusterName",
            "NodeName string .status.nodeRef.name",
            "ProviderID string .spec.providerID",
            "Phase string .status.phase",
            AGE,
            "Version string .spec.version",
        ),
        version="v1beta1",
        names={"shortNames": ["stylema"]},
    ),
    define(
        "cluster",
        "MachineDeployment",
        {
            "clusterName!": f("c", minLength=1),
            "replicas": f(3, format="int32"),
            "selector!": label_selector(),
            "template!": {"metadata": {"labels": labels()}, "spec!": _MACHINE},
            "strategy": {
                "type": f("RollingUpdate", enum=["RollingUpdate", "OnDelete"]),
                "rollingUpdate": {
                    "maxSurge": int_or_string(1),
                    "maxUnavailable": int_or_string("10%"),
                    "deletePolicy": f("Random", enum=["Random", "Newest", "Oldest"]),
                },
            },
            "minReadySeconds": f(0, format="int32"),
            "paused": False,
        },
        status={"replicas": f(3, format="int32"), "selector": "a=b", "conditions": _CAPI_CONDITIONS},
        scale=(".spec.replicas", ".status.replicas", ".status.selector"),
        columns=(
            "Cluster string .spec.clusterName",
            "Desired integer .spec.replicas",
            "Replicas integer .status.replicas",
            AGE,
        ),
        version="v1beta1",
        names={"shortNames": ["stylemd"]},
    ),
    define(
        "cluster",
        "MachineHealthCheck",
        f(
            {
                "clusterName!": f("c", minLength=1),
                "selector!": label_selector(),
                "maxUnhealthy": int_or_string("40%"),
                "unhealthyRange": f("[0-2]", pattern=r"^\[[0-9]+-[0-9]+\]$"),
                "nodeStartupTimeout": "10m",
                "unhealthyConditions": f(
                    [
                        {
                            "type!": f("Ready", minLength=1),
                            "status!": f("False", minLength=1),
                            "timeout!": "5m",
                        }
                    ],
                    maxItems=100,
                ),
                "remediationTemplate": f(_CAPI_REF, map_type="atomic"),
            }
        ),
        status={
            "currentHealthy": f(1, format="int32", minimum=0),
            "expectedMachines": f(1, format="int32", minimum=0),
            "targets": f(["a"]),
        },
        columns=(
            "Cluster string .spec.clusterName",
            "ExpectedMachines integer .status.expectedMachines",
            "CurrentHealthy integer .status.currentHealthy",
        ),
        version="v1beta1",
    ),
    define(
        "cluster",
        "ControlPlane",
        {
            "version!": f("v1.36.0", minLength=1),
            "replicas": f(3, format="int32"),
            "machineTemplate!": {
                "infrastructureRef!": f(_CAPI_REF, map_type="atomic"),
                "metadata": {"labels": labels()},
            },
            "kubeadmConfigSpec!": f(
                {
                    "clusterConfiguration": {
                        "apiServer": {"extraArgs": mapping({"a": "b"}), "certSANs": ["x"]},
                        "featureGates": mapping({"A": True}),
                        "etcd": {
                            "local": {"dataDir": "/d"},
                            "external?": {"caFile!": "a", "endpoints!": ["b"]},
                        },
                    },
                    "initConfiguration": {
                        "nodeRegistration": {
                            "taints": [_TAINT],
                            "kubeletExtraArgs": mapping({"a": "b"}),
                            "imagePullPolicy": f("Always", enum=["Always", "IfNotPresent", "Never"]),
                        }
                    },
                    "files": f(
                        [
                            f(
                                {
                                    "path!": "/x",
                                    "content": "c",
                                    "encoding": f("base64", enum=["base64", "gzip", "gzip+base64"]),
                                    "owner": "root",
                                }
                            )
                        ],
                        maxItems=200,
                    ),
                    "users": f(
                        [{"name!": "u", "sshAuthorizedKeys": ["k"], "lockPassword": True}], maxItems=100
                    ),
                    "ntp": {"enabled": True, "servers": ["a"]},
                    "format": f("cloud-config", enum=["cloud-config", "ignition"]),
                    "mounts": [["a", "b"]],
                }
            ),
            "rolloutStrategy": f(
                {
                    "type": f("RollingUpdate", enum=["RollingUpdate"]),
                    "rollingUpdate": {"maxSurge": int_or_string(1)},
                },
                default={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            ),
            "rolloutAfter": f(TIME, format="date-time"),
        },
        status={
            "initialized": f(True),
            "ready": f(False, default=False),
            "replicas": f(3, format="int32"),
            "selector": "a=b",
            "conditions": _CAPI_CONDITIONS,
        },
        scale=(".spec.replicas", ".status.replicas", ".status.selector"),
        version="v1beta1",
        columns=(
            "Initialized boolean .status.initialized",
            "Ready integer .status.readyReplicas",
            "Version string .spec.version",
        ),
    ),
]
