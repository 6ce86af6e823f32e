"""CRDs in the style of projects for Kafka."""

from __future__ import annotations

from .blocks import define, toleration
from .schemas import anything, f, mapping

_LISTENER = {
    "name!": f("plain", pattern="^[a-z0-9]{1,11}$"),
    "port!": f(9092, minimum=9092),
    "type!": f("internal", enum=["internal", "route", "loadbalancer", "nodeport", "ingress", "cluster-ip"]),
    "tls!": False,
    "authentication": f(
        {
            "type!": f("scram-sha-512", enum=["tls", "scram-sha-512", "oauth", "custom"]),
            "clientSecret?": {"key!": "k", "secretName!": "s"},
            "maxSecondsWithoutReauthentication": 3600,
        }
    ),
    "configuration": {
        "brokers": [
            {"broker!": 0, "advertisedHost": "h", "nodePort": 30000, "annotations": anything({"a": "b"})}
        ],
        "createBootstrapService": True,
    },
    "networkPolicyPeers": [
        {
            "podSelector": {
                "matchLabels": anything({"a": "b"}),
                "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
            },
            "ipBlock?": {"cidr": "10.0.0.0/8"},
        }
    ],
}
_STORAGE = {
    "type!": f("jbod", enum=["ephemeral", "persistent-claim", "jbod"]),
    "volumes": [
        {
            "id": f(0, minimum=0),
            "type!": f("persistent-claim", enum=["ephemeral", "persistent-claim"]),
            "size": "100Gi",
            "deleteClaim": False,
            "overrides": [{"broker": 0, "class": "fast"}],
            "kraftMetadata": f("shared", enum=["shared"]),
        }
    ],
    "sizeLimit?": f("1Gi", pattern="^([0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"),
}
_STRIMZI_STATUS = {
    "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "x", "reason": "r", "message": "m"}
    ],
    "observedGeneration": 1,
}
_PROBES = {"initialDelaySeconds": f(15, minimum=0), "timeoutSeconds": f(5, minimum=1)}
_KAFKA_RESOURCES = {
    "limits": anything({"cpu": 1, "memory": "2Gi"}),
    "requests": anything({"cpu": "500m"}),
    "claims": [{"name": "a"}],
}
_KCOLUMNS = ('Ready string .status.conditions[?(@.type=="Ready")].status',)

CASES = [
    define(
        "kafka",
        "KafkaCluster",
        {
            "kafka!": {
                "version": "4.0.0",
                "replicas?": f(3, minimum=1),
                "listeners!": f([_LISTENER], minItems=1),
                "config": anything({"min.insync.replicas": 2, "a": [1, True]}),
                "storage": _STORAGE,
                "rack": {"topologyKey!": "zone"},
                "resources": _KAFKA_RESOURCES,
                "livenessProbe": _PROBES,
                "jvmOptions": {
                    "-XX": mapping({"UseG1GC": "true"}),
                    "-Xms": f("1g", pattern="^[0-9]+[mMgG]?$"),
                    "gcLoggingEnabled": True,
                    "javaSystemProperties": [{"name": "a", "value": "b"}],
                },
                "metricsConfig": {
                    "type!": f("jmxPrometheusExporter", enum=["jmxPrometheusExporter"]),
                    "valueFrom!": {"configMapKeyRef": {"key": "a", "name": "b", "optional": True}},
                },
                "template": {
                    "pod": {
                        "metadata": {"labels": mapping({"a": "b"})},
                        "tolerations": [toleration()],
                        "terminationGracePeriodSeconds": f(30, minimum=0),
                    }
                },
            },
            "entityOperator": {
                "topicOperator": {
                    "reconciliationIntervalMs": f(100, minimum=0),
                    "logging": f(
                        {"type!": f("inline", enum=["inline", "external"]), "loggers": mapping({"a": "INFO"})}
                    ),
                },
                "userOperator": {"watchedNamespace": "x"},
            },
            "clusterCa": {
                "generateCertificateAuthority": True,
                "validityDays": f(365, minimum=1),
                "certificateExpirationPolicy": f(
                    "renew-certificate", enum=["renew-certificate", "replace-key"]
                ),
            },
            "maintenanceTimeWindows": ["* * * * *"],
        },
        status={
            **_STRIMZI_STATUS,
            "listeners": [{"name": "a", "addresses": [{"host": "h", "port": 1}], "certificates": ["x"]}],
            "clusterId": "x",
        },
        columns=(*_KCOLUMNS, 'Warnings string .status.conditions[?(@.type=="Warning")].status'),
        version="v1beta2",
        names={"shortNames": ["stylek"], "categories": ["style-kafka"]},
    ),
    define(
        "kafka",
        "KafkaTopic",
        {
            "topicName": "a.b",
            "partitions": f(3, minimum=1),
            "replicas": f(3, minimum=1, maximum=32767),
            "config": anything({"retention.ms": 1000}),
        },
        status=_STRIMZI_STATUS,
        columns=(
            "Cluster string .metadata.labels.kafka\\.example\\.com/cluster",
            "Partitions integer .spec.partitions",
            "Replication_factor integer .spec.replicas",
            *_KCOLUMNS,
        ),
        version="v1beta2",
        names={"shortNames": ["stylekt"], "categories": ["style-kafka"]},
        other_versions=({"name": "v1beta1", "deprecated": True}, {"name": "v1alpha1"}),
    ),
    define(
        "kafka",
        "KafkaUser",
        {
            "authentication": {
                "type!": f("scram-sha-512", enum=["tls", "tls-external", "scram-sha-512"]),
                "password": {"valueFrom!": {"secretKeyRef": {"key": "k", "name": "n"}}},
            },
            "authorization": {
                "type!": f("simple", enum=["simple"]),
                "acls!": [
                    {
                        "type": f("allow", enum=["allow", "deny"]),
                        "resource!": {
                            "type!": f("topic", enum=["topic", "group", "cluster", "transactionalId"]),
                            "name": "x",
                            "patternType": f("prefix", enum=["literal", "prefix"]),
                        },
                        "host": "*",
                        "operations": [f("Read", enum=["Read", "Write", "All"])],
                    }
                ],
            },
            "quotas": {"producerByteRate": f(1, minimum=0), "controllerMutationRate": f(0.5, minimum=0)},
            "template": {"secret": {"metadata": {"labels": mapping({"a": "b"})}}},
        },
        status={**_STRIMZI_STATUS, "username": "u", "secret": "s"},
        columns=(
            "Cluster string .metadata.labels.kafka\\.example\\.com/cluster",
            "Authentication string .spec.authentication.type",
            *_KCOLUMNS,
        ),
        version="v1beta2",
    ),
    define(
        "kafka",
        "KafkaConnect",
        {
            "replicas": 1,
            "bootstrapServers!": "a:9092",
            "config": anything({"group.id": "x"}),
            "tls": {
                "trustedCertificates": [
                    f(
                        {"secretName!": "s", "certificate": "ca.crt", "pattern?": "*.crt"},
                        oneOf=[
                            {"properties": {"certificate": {}}, "required": ["certificate"]},
                            {"properties": {"pattern": {}}, "required": ["pattern"]},
                        ],
                    )
                ]
            },
            "build": {
                "output!": {"type!": f("docker", enum=["docker", "imagestream"]), "image!": "i"},
                "plugins!": [
                    {
                        "name!": f("ab", pattern="^[a-z0-9][-_a-z0-9]*[a-z0-9]$"),
                        "artifacts!": [
                            {
                                "type!": f("jar", enum=["jar", "tgz", "maven"]),
                                "url": f(
                                    "https://x.example.com/a.jar",
                                    pattern="^(https?|ftp)://[-a-zA-Z0-9+&@#/%?=~_|!:,.;]*[-a-zA-Z0-9+&@#/%=~_|]$",
                                ),
                                "insecure": True,
                            }
                        ],
                    }
                ],
            },
            "externalConfiguration": {
                "env": [{"name!": "A", "valueFrom!": {"secretKeyRef": {"key": "a", "name": "b"}}}]
            },
        },
        status={
            **_STRIMZI_STATUS,
            "replicas": 1,
            "labelSelector": "a=b",
            "connectorPlugins": [{"class": "x", "type": "y"}],
        },
        scale=(".spec.replicas", ".status.replicas", ".status.labelSelector"),
        columns=("Desired_replicas integer .spec.replicas", *_KCOLUMNS),
        version="v1beta2",
    ),
    define(
        "kafka",
        "KafkaConnector",
        {
            "class": "x.Y",
            "tasksMax": f(1, minimum=1),
            "config": anything({"a": 1}),
            "pause": False,
            "state": f("running", enum=["paused", "stopped", "running"]),
            "autoRestart": {"enabled": True, "maxRestarts": 3},
        },
        status={**_STRIMZI_STATUS, "connectorStatus": anything({"a": 1}), "tasksMax": 1, "topics": ["a"]},
        scale=(".spec.tasksMax", ".status.tasksMax"),
        columns=(
            "Cluster string .metadata.labels.kafka\\.example\\.com/cluster",
            "Max_Tasks integer .spec.tasksMax",
            *_KCOLUMNS,
        ),
        version="v1beta2",
    ),
]
