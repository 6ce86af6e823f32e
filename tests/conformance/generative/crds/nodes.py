"""CRDs in the style of projects for nodes and virtual machines."""

from __future__ import annotations

from .blocks import AGE, READY, TIME, define, resources, status
from .schemas import anything, f, int_or_string, mapping, quantity

_TAINT = {
    "key!": f(
        "a",
        minLength=1,
        pattern=r"^([a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9](\.[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$",
    ),
    "effect!": f("NoSchedule", enum=["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    "value": "v",
}
_REQUIREMENT = f(
    {
        "key!": f(
            "zone",
            maxLength=316,
            rules=[
                (
                    "self in ['zone', 'arch', 'capacity'] || !self.contains('kubernetes.io')",
                    "domain is restricted",
                )
            ],
        ),
        "operator!": f("In", enum=["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
        "values": f([f("a", maxLength=63)], maxItems=50),
        "minValues": f(1, minimum=1, maximum=50),
    }
)

CASES = [
    define(
        "nodes",
        "NodePool",
        f(
            {
                "disruption": f(
                    {
                        "consolidateAfter": f("0s", default="0s", pattern=r"^(([0-9]+(s|m|h))+|Never)$"),
                        "consolidationPolicy": f(
                            "WhenEmptyOrUnderutilized",
                            default="WhenEmptyOrUnderutilized",
                            enum=["WhenEmpty", "WhenEmptyOrUnderutilized"],
                        ),
                        "budgets": f(
                            [
                                f(
                                    {
                                        "nodes!": f(
                                            "10%", default="10%", pattern="^((100|[0-9]{1,2})%|[0-9]+)$"
                                        ),
                                        "schedule": f(
                                            "@daily",
                                            pattern=r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$",
                                        ),
                                        "duration": f(
                                            "1h", pattern="^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"
                                        ),
                                        "reasons": f(
                                            [f("Empty", enum=["Underutilized", "Empty", "Drifted"])]
                                        ),
                                    }
                                )
                            ],
                            default=[{"nodes": "10%"}],
                            maxItems=50,
                            rules=[
                                (
                                    "self.all(x, has(x.schedule) == has(x.duration))",
                                    "'schedule' must be set with 'duration'",
                                )
                            ],
                        ),
                    },
                    default={"consolidateAfter": "0s"},
                ),
                "limits": f({"cpu": quantity("1000")}, is_map=True),
                "template!": {
                    "metadata": {
                        "labels": mapping(
                            {
                                "a": f(
                                    "b",
                                    maxLength=63,
                                    pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
                                )
                            },
                            maxProperties=100,
                            rules=[
                                (
                                    "self.all(x, x in ['a', 'b'] || !x.endsWith('kubernetes.io'))",
                                    "label domain is restricted",
                                )
                            ],
                        )
                    },
                    "spec!": f(
                        {
                            "expireAfter": f("720h", default="720h", pattern=r"^(([0-9]+(s|m|h))+|Never)$"),
                            "nodeClassRef!": f(
                                {
                                    "group!": f(
                                        "k.example.com",
                                        pattern=r"^[^/]*$",
                                        rules=[("self != ''", "group may not be empty")],
                                    ),
                                    "kind!": f("NodeClass", rules=[("self != ''", "kind may not be empty")]),
                                    "name!": f("default", rules=[("self != ''", "name may not be empty")]),
                                },
                                rules=[
                                    ("self.group == oldSelf.group", "nodeClassRef.group is immutable"),
                                    ("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable"),
                                ],
                            ),
                            "requirements!": f(
                                [_REQUIREMENT],
                                maxItems=100,
                                rules=[
                                    (
                                        "self.all(x, x.operator == 'In' ? x.values.size() != 0 : true)",
                                        "requirements with operator 'In' must have a value defined",
                                    ),
                                    (
                                        "self.all(x, (x.operator == 'Gt' || x.operator == 'Lt') ? (x.values.size() == 1 && int(x.values[0]) >= 0) : true)",
                                        "requirements operator 'Gt' or 'Lt' must have a single positive integer value",
                                    ),
                                    (
                                        "self.all(x, (x.operator == 'In' && has(x.minValues)) ? x.values.size() >= x.minValues : true)",
                                        "requirements with 'minValues' must have at least that many values specified in the 'values' field",
                                    ),
                                ],
                            ),
                            "taints": [_TAINT],
                            "startupTaints": [_TAINT],
                            "terminationGracePeriod": f("48h", pattern=r"^([0-9]+(s|m|h))+$"),
                        }
                    ),
                },
                "weight": f(10, format="int32", minimum=1, maximum=100),
                "replicas?": f(1, format="int64", minimum=0),
            },
            rules=[
                (
                    "has(self.replicas) == has(oldSelf.replicas)",
                    "Cannot transition NodePool between static (replicas set) and dynamic (replicas unset) provisioning modes",
                ),
                ("!has(self.replicas) || !has(self.weight)", "'weight' is not supported on static NodePools"),
            ],
        ),
        status=status(
            resources=f({"cpu": quantity("1")}, is_map=True), nodes=f(0, default=0, format="int64")
        ),
        scope="Cluster",
        columns=(
            "NodeClass string .spec.template.spec.nodeClassRef.name",
            "Nodes integer .status.nodes",
            READY,
            AGE,
            "Weight integer .spec.weight 1",
            "CPU string .status.resources.cpu 1",
        ),
        names={"categories": ["style-karpenter"]},
        scale=(".spec.replicas", ".status.nodes"),
    ),
    define(
        "nodes",
        "NodeClaim",
        f(
            {
                "requirements!": f([_REQUIREMENT], maxItems=100),
                "nodeClassRef!": {"group!": "k", "kind!": "N", "name!": "n"},
                "resources": {"requests": f({"cpu": quantity(1)}, is_map=True)},
                "taints": [_TAINT],
                "expireAfter": f("720h", default="720h", pattern=r"^(([0-9]+(s|m|h))+|Never)$"),
            },
            rules=[("self == oldSelf", "spec is immutable")],
        ),
        status=status(
            allocatable=f({"cpu": quantity("1")}, is_map=True),
            nodeName="n",
            providerID="p",
            lastPodEventTime=f(TIME, format="date-time"),
        ),
        scope="Cluster",
        columns=(
            "Type string .metadata.labels.node\\.example\\.com/instance-type",
            "Node string .status.nodeName",
            READY,
            AGE,
        ),
    ),
    define(
        "virt",
        "VirtualMachine",
        {
            "running": True,
            "runStrategy?": "Always",
            "dataVolumeTemplates": [
                f(
                    {
                        "apiVersion": "a/v1",
                        "kind": "DataVolume",
                        "metadata": anything({"name": "d"}, nullable=True),
                        "spec!": {
                            "pvc": {"resources": resources(), "accessModes": ["ReadWriteOnce"]},
                            "source": {"http": {"url!": "u", "extraHeaders": ["a"]}},
                            "finalCheckpoint": True,
                        },
                    }
                )
            ],
            "template!": {
                "metadata": anything({"labels": {"a": "b"}}, nullable=True),
                "spec": {
                    "domain!": {
                        "devices!": {
                            "disks": [
                                {"name!": "d", "disk": {"bus": "virtio", "pciAddress": "x"}, "bootOrder": 1}
                            ],
                            "interfaces": [
                                {
                                    "name!": "i",
                                    "masquerade": anything({}),
                                    "macAddress": "a",
                                    "ports": [{"port!": f(80, format="int32")}],
                                }
                            ],
                            "rng": anything({}),
                        },
                        "cpu": {
                            "cores": f(2, format="int32"),
                            "features": [{"name!": "f", "policy": "require"}],
                        },
                        "memory": {"guest": quantity("2Gi"), "hugepages": {"pageSize": "1Gi"}},
                        "firmware": {"uuid": "x", "bootloader": {"efi": {"secureBoot": True}}},
                        "resources": {
                            "requests": f({"memory": quantity("1Gi")}, is_map=True),
                            "overcommitGuestOverhead": True,
                        },
                        "clock": {"utc": {"offsetSeconds": 1}, "timer": {"hpet": {"present": False}}},
                    },
                    "networks": [{"name!": "n", "pod": {"vmNetworkCIDR": "x"}}],
                    "volumes": [
                        {
                            "name!": "v",
                            "containerDisk": {"image!": "i"},
                            "cloudInitNoCloud?": {"userData": "x"},
                        }
                    ],
                    "evictionStrategy": "LiveMigrate",
                    "terminationGracePeriodSeconds": f(30, format="int64"),
                    "livenessProbe": {
                        "tcpSocket": {"port!": int_or_string(22)},
                        "periodSeconds": f(1, format="int32"),
                    },
                },
            },
        },
        status=f(
            {
                "ready": True,
                "printableStatus": f("Stopped", default="Stopped"),
                "conditions": [
                    {
                        "type!": "Ready",
                        "status!": "True",
                        "lastProbeTime": f(TIME, format="date-time", nullable=True),
                    }
                ],
                "volumeSnapshotStatuses": [{"name!": "a", "enabled!": True}],
            }
        ),
        columns=(AGE, "Status string .status.printableStatus", READY),
        names={"shortNames": ["stylevm", "stylevms"], "categories": ["style-all"]},
    ),
    define(
        "scaling",
        "VerticalAutoscaler",
        {
            "targetRef!": f(
                {"apiVersion": "apps/v1", "kind!": "Deployment", "name!": "web"}, map_type="atomic"
            ),
            "updatePolicy": {
                "updateMode": f("Recreate", enum=["Off", "Initial", "Recreate", "Auto"]),
                "minReplicas": f(2, format="int32"),
                "evictionRequirements": [
                    {
                        "resources!": ["cpu"],
                        "changeRequirement!": f(
                            "TargetHigherThanRequests",
                            enum=["TargetHigherThanRequests", "TargetLowerThanRequests"],
                        ),
                    }
                ],
            },
            "resourcePolicy": {
                "containerPolicies": [
                    {
                        "containerName": "*",
                        "mode": f("Auto", enum=["Auto", "Off"]),
                        "minAllowed": f({"cpu": quantity("100m")}, is_map=True),
                        "controlledResources": [f("cpu")],
                        "controlledValues": f("RequestsOnly", enum=["RequestsAndLimits", "RequestsOnly"]),
                    }
                ]
            },
            "recommenders": [{"name!": "r"}],
        },
        status={
            "conditions": [
                {
                    "type!": "RecommendationProvided",
                    "status!": "True",
                    "lastTransitionTime": f(TIME, format="date-time"),
                }
            ],
            "recommendation": {
                "containerRecommendations": [
                    {"containerName": "a", "target!": f({"cpu": quantity("25m")}, is_map=True)}
                ]
            },
        },
        columns=(
            "Mode string .spec.updatePolicy.updateMode",
            "CPU string .status.recommendation.containerRecommendations[0].target.cpu",
            'Provided string .status.conditions[?(@.type=="RecommendationProvided")].status',
            AGE,
        ),
        names={"shortNames": ["stylevpa"]},
    ),
]
