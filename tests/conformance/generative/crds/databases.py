"""CRDs in the style of projects for other databases and message brokers."""

from __future__ import annotations

from .blocks import (
    AGE,
    NAME,
    TIME,
    claim_template,
    container,
    define,
    embedded,
    environment,
    pod_template,
    resources,
    status,
    toleration,
)
from .schemas import anything, f, mapping, quantity

CASES = [
    define(
        "redis",
        "RedisCluster",
        f(
            {
                "size!": f(3, format="int32", minimum=3),
                "image": "redis:8",
                "persistenceEnabled": f(True, default=False),
                "storage": {"volumeClaimTemplate": claim_template(), "keepAfterDelete": False},
                "redisExporter": {"enabled": True, "image!": "e", "env": environment()},
                "podSecurityContext": {
                    "fsGroup": f(1000, format="int64"),
                    "supplementalGroups": f([f(1, format="int64")], list_type="atomic"),
                },
                "affinity": anything({"nodeAffinity": {}}),
                "config": f({"maxmemory-policy": f("noeviction", enum=["noeviction", "allkeys-lru"])}),
            },
            rules=[("self.size >= oldSelf.size", "the cluster cannot shrink")],
        ),
        status={
            "state": "Ready",
            "readyLeaderReplicas": f(0, default=0, format="int32"),
            "slots": f([[f(0, maximum=16383)]]),
        },
        columns=("Size integer .spec.size", "State string .status.state", AGE),
        version="v1beta2",
        scale=(".spec.size", ".status.readyLeaderReplicas"),
    ),
    define(
        "mongo",
        "MongoReplicaSet",
        {
            "members": 3,
            "type!": f("ReplicaSet", enum=["ReplicaSet"]),
            "version": "7.0.0",
            "users!": [
                {
                    "name!": "u",
                    "db": f("admin", default="admin"),
                    "passwordSecretRef": {"key": "k", "name!": "n"},
                    "roles!": [{"db!": "a", "name!": "b"}],
                    "scramCredentialsSecretName": f(
                        "s", pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
                    ),
                    "additionalConnectionStringConfig": anything({"a": 1}, nullable=True),
                }
            ],
            "security": {
                "authentication": {
                    "modes!": [f("SCRAM", enum=["SCRAM", "SCRAM-SHA-256", "X509"])],
                    "ignoreUnknownUsers": f(True, default=True, nullable=True),
                },
                "tls": {"enabled!": False},
            },
            "statefulSet": {"spec!": anything({"a": 1}), "metadata": {"labels": mapping({"a": "b"})}},
            "additionalMongodConfig": anything({"a": 1}, nullable=True),
            "memberConfig": [{"votes": 1, "priority": "1", "tags": mapping({"a": "b"})}],
        },
        status={
            "currentMongoDBMembers!": 0,
            "currentStatefulSetReplicas!": 0,
            "mongoUri!": "x",
            "phase!": "Running",
        },
        columns=("Phase string .status.phase", "Version string .status.version"),
    ),
    define(
        "search",
        "SearchCluster",
        {
            "version!": "9.0.0",
            "nodeSets!": f(
                [
                    {
                        "name!": f("hot", maxLength=23, pattern=r"[a-zA-Z0-9-]+"),
                        "count!": f(3, format="int32"),
                        "config": anything({"node.roles": ["data"]}),
                        "podTemplate": anything({"spec": {}}),
                        "volumeClaimTemplates": [claim_template()],
                    }
                ],
                minItems=1,
            ),
            "http": {
                "service": {
                    "metadata": anything({"annotations": {}}),
                    "spec": {
                        "ports": f(
                            [{"port!": f(9200, format="int32"), "protocol": f("TCP", default="TCP")}],
                            keys=["port", "protocol"],
                        ),
                        "type": "ClusterIP",
                        "sessionAffinityConfig?": {"clientIP": {"timeoutSeconds": f(1, format="int32")}},
                    },
                },
                "tls": {
                    "selfSignedCertificate": {"disabled": True, "subjectAltNames": [{"dns": "a", "ip": "b"}]}
                },
            },
            "updateStrategy": {
                "changeBudget": {"maxSurge": f(1, format="int32"), "maxUnavailable": f(1, format="int32")}
            },
            "volumeClaimDeletePolicy": f(
                "DeleteOnScaledownOnly", enum=["DeleteOnScaledownOnly", "DeleteOnScaledownAndClusterDeletion"]
            ),
            "remoteClusters": f(
                [
                    {
                        "name!": f("a", minLength=1),
                        "apiKey": {
                            "access!": {"search": {"names!": ["a"], "field_security": {"grant!": ["x"]}}}
                        },
                    }
                ]
            ),
            "secureSettings": [{"secretName!": "s", "entries": [{"key!": "a", "path": "b"}]}],
        },
        status={
            "health": "green",
            "availableNodes": f(3, format="int32"),
            "phase": "Ready",
            "inProgressOperations!": {
                "upgrade!": {
                    "nodes": [{"name!": "a", "status!": "b"}],
                    "lastUpdatedTime": f(TIME, format="date-time"),
                }
            },
        },
        columns=(
            "health string .status.health",
            "nodes integer .status.availableNodes",
            "version string .status.version",
            "phase string .status.phase",
            "age date .metadata.creationTimestamp",
        ),
        names={"shortNames": ["stylees"], "categories": ["style-elastic"]},
    ),
    define(
        "rabbit",
        "RabbitCluster",
        {
            "replicas": f(1, default=1, format="int32", minimum=0),
            "image": "r:4",
            "service": f(
                {
                    "type": f(
                        "ClusterIP", default="ClusterIP", enum=["ClusterIP", "LoadBalancer", "NodePort"]
                    ),
                    "annotations": mapping({"a": "b"}),
                    "ipFamilyPolicy?": f("SingleStack", enum=["SingleStack", "PreferDualStack"]),
                },
                default={"type": "ClusterIP"},
            ),
            "persistence": f(
                {"storage": quantity("10Gi", default="10Gi"), "storageClassName": "x"},
                default={"storage": "10Gi"},
            ),
            "resources": f(resources(), type="object", default={"limits": {"cpu": "2000m"}}),
            "rabbitmq": {
                "additionalConfig": f("x", maxLength=2000),
                "additionalPlugins": f([f("a_b", maxLength=100, pattern="^\\w+$")], maxItems=100),
                "erlangInetConfig": f("y", maxLength=2000),
            },
            "override": {
                "statefulSet": {
                    "spec": {
                        "podManagementPolicy": "Parallel",
                        "template": {
                            "spec": {"containers": f([container()], keys=["name"])},
                            "metadata": {"annotations": mapping({"a": "b"})},
                        },
                        "volumeClaimTemplates": [
                            {
                                "metadata": {"name": "a", "namespace": "b"},
                                "spec": {"accessModes": ["ReadWriteOnce"]},
                            }
                        ],
                    }
                }
            },
            "terminationGracePeriodSeconds": f(604800, default=604800, format="int64", minimum=0),
            "delayStartSeconds": f(30, default=30, format="int32", minimum=0),
            "tolerations": [toleration()],
            "secretBackend": {"externalSecret": f({"name": f("x", default="")}, map_type="atomic")},
        },
        status={
            "conditions!": [
                {"type!": "a", "status!": "True", "lastTransitionTime": f(TIME, format="date-time")}
            ],
            "binding": f({"name": f("x", default="")}, map_type="atomic"),
            "defaultUser": {
                "secretReference": {"keys!": mapping({"a": "b"}), "name!": "n", "namespace!": "m"}
            },
            "observedGeneration": f(1, format="int64"),
        },
        columns=('AllReplicasReady string .status.conditions[?(@.type=="AllReplicasReady")].status', AGE),
        version="v1beta1",
        names={"shortNames": ["stylermq"], "categories": ["style-all"]},
    ),
    define(
        "mysql",
        "MySQLCluster",
        f(
            {
                "instances!": f(3, minimum=1, maximum=9, default=1),
                "secretName!": "root",
                "router": {
                    "instances": f(2, minimum=0, default=1),
                    "podSpec": anything({"a": 1}),
                    "options": ["--x"],
                },
                "initDB": f(
                    {
                        "clone?": {"donorUrl!": "u", "secretKeyRef!": {"name!": "a"}},
                        "dump": {
                            "name": "x",
                            "storage": f(
                                {
                                    "s3?": {"bucketName!": "b", "config!": "c"},
                                    "persistentVolumeClaim": anything({"claimName": "a"}),
                                },
                                type="object",
                            ),
                        },
                    }
                ),
                "mycnf": "[mysqld]",
                "datadirVolumeClaimTemplate": anything({"accessModes": ["ReadWriteOnce"]}),
                "backupProfiles": f(
                    [
                        {
                            "name!": f("p", pattern=NAME),
                            "dumpInstance": {
                                "dumpOptions": anything({"a": 1}),
                                "storage": {"s3": {"bucketName!": "b", "prefix": "p"}},
                            },
                        }
                    ],
                    keys=["name"],
                ),
                "baseServerId": f(1000, minimum=0, maximum=4294967195, default=1000),
                "version": f("9.0.0", pattern=r"^\d+\.\d+\.\d+(-.+)?"),
                "tls": f(
                    {"useSelfSigned": f(False, default=False), "ca": f("x", nullable=True)}, nullable=True
                ),
            }
        ),
        status=anything({"cluster": {"status": "ONLINE"}}),
        columns=(
            "Status string .status.cluster.status",
            "Online integer .status.cluster.onlineInstances",
            "Instances integer .spec.instances",
            "Routers integer .spec.router.instances",
            AGE,
        ),
        version="v2",
    ),
    define(
        "cassandra",
        "CassandraDatacenter",
        {
            "clusterName!": f("c1", minLength=2),
            "size!": f(3, format="int32", minimum=1),
            "serverType!": f("cassandra", enum=["cassandra", "dse", "hcd"]),
            "serverVersion!": f(
                "4.1.0",
                pattern=r"(6\.8\.\d+)|(3\.11\.\d+)|(4\.\d+\.\d+)|(5\.\d+\.\d+)|(7\.\d+\.\d+)|(1\.\d+\.\d+)",
            ),
            "config": anything({"cassandra-yaml": {"num_tokens": 8}}),
            "racks": [
                {
                    "name!": f("r1", minLength=2),
                    "nodeAffinityLabels": mapping({"zone": "a"}),
                    "affinity": anything({}),
                }
            ],
            "storageConfig!": {
                "cassandraDataVolumeClaimSpec": {
                    "accessModes": f(["ReadWriteOnce"], list_type="atomic"),
                    "dataSourceRef?": {"kind!": "a", "name!": "b"},
                    "resources": resources(),
                },
                "additionalVolumes": [{"mountPath!": "/x", "name!": "v"}],
            },
            "networking": {"hostNetwork": True, "nodePort": {"native": 30001}},
            "stopped": False,
            "users": [{"secretName!": "s", "superuser!": True}],
            "podTemplateSpec": pod_template(),
            "managementApiAuth": {
                "insecure": anything({}),
                "manual?": {"clientSecretName!": "c", "serverSecretName!": "s"},
            },
        },
        status={
            "cassandraOperatorProgress": "x",
            "nodeStatuses": f({"a": {"hostID": "x", "rack": "r"}}, is_map=True),
            "observedGeneration": f(1, format="int64"),
            "conditions": [{"type!": "a", "status!": "b", "message!": "c", "reason!": "d"}],
        },
        version="v1beta1",
        names={"shortNames": ["styledc", "styledcs"]},
        scale=(".spec.size", ".status.nodeCount"),
    ),
    define(
        "streams",
        "StreamAccount",
        f(
            {
                "limits": {
                    "subs": f(-1, format="int64"),
                    "data": quantity("1Gi"),
                    "conns": f(10, minimum=-1),
                },
                "exports": f(
                    [
                        {
                            "name": "a",
                            "subject!": f("orders.>", pattern=r"^[^\s]+$"),
                            "type!": f("stream", enum=["stream", "service"]),
                            "tokenReq": False,
                            "responseThreshold": f("1s", format="duration"),
                        }
                    ],
                    maxItems=32,
                    rules=[
                        (
                            "self.all(e, e.type == 'stream' || has(e.responseThreshold))",
                            "services need a threshold",
                        )
                    ],
                ),
                "mappings": f(
                    {"a": f([{"subject!": "b", "weight": f(50, minimum=0, maximum=100)}], maxItems=8)},
                    is_map=True,
                    maxProperties=8,
                ),
                "expires": f("2027-01-01", format="date"),
                "owner": embedded("Account", {"spec": {"a": 1}}),
                "id": f("123e4567-e89b-12d3-a456-426614174000", format="uuid"),
                "ratio": f(0.25, format="double", minimum=0, exclusiveMinimum=True, maximum=1),
                "password": f("x", format="password"),
                "contact": f("a@example.com", format="email"),
                "docs": f("https://example.com", format="uri"),
                "tags": f(["a"], list_type="set", maxItems=4),
                "pairs": f([f({"a!": "x", "b": 1}, map_type="atomic")], list_type="set", maxItems=3),
            },
            rules=[
                {
                    "rule": "!has(self.exports) || self.exports.map(e, e.subject).all(s, s.startsWith('orders'))",
                    "message": "only orders",
                    "fieldPath": ".exports",
                },
                {"rule": "!has(self.tags) || self.tags.isSorted()", "message": "tags must be sorted"},
                {
                    "rule": "!has(self.mappings) || self.mappings.all(k, self.mappings[k].map(m, has(m.weight) ? m.weight : 0).sum() <= 100)",
                    "message": "weights exceed 100",
                },
                {
                    "rule": "!has(self.id) || self.id.matches('^[0-9a-f-]+$')",
                    "messageExpression": "'id ' + self.id + ' is not hexadecimal'",
                },
            ],
        ),
        status=status(),
        version="v1beta2",
        columns=(
            "Ratio number .spec.ratio",
            "Expires string .spec.expires",
            "Subs integer/int64 .spec.limits.subs",
            "Tags string .spec.tags[*]",
            AGE,
        ),
    ),
]
