"""CRDs in the style of projects for PostgreSQL."""

from __future__ import annotations

from .blocks import AGE, TIME, conditions, define, pod_template, resources, toleration
from .schemas import f, int_or_string, mapping

_PG_STORAGE = {
    "size": "10Gi",
    "storageClass": "fast",
    "resizeInUseVolumes": f(True, default=True),
    "pvcTemplate": {"accessModes": f(["ReadWriteOnce"], list_type="atomic"), "resources": resources()},
}
_S3 = {
    "destinationPath!": f("s3://x", minLength=1),
    "endpointURL": "u",
    "s3Credentials": {"accessKeyId": f({"key!": "k", "name!": "n"}), "inheritFromIAMRole": True},
    "wal": {
        "compression": f("gzip", enum=["gzip", "bzip2", "snappy"]),
        "maxParallel": f(2, minimum=1),
        "archiveAdditionalCommandArgs": ["a"],
    },
    "data": {
        "jobs": f(2, format="int32", minimum=1),
        "encryption": f("AES256", enum=["AES256", "aws:kms"]),
        "immediateCheckpoint": True,
    },
    "tags": mapping({"a": "b"}),
}

CASES = [
    define(
        "postgres",
        "PgCluster",
        f(
            {
                "instances!": f(3, default=1, minimum=1),
                "imageName": "postgres:17",
                "storage": _PG_STORAGE,
                "walStorage": _PG_STORAGE,
                "bootstrap": {
                    "initdb": f(
                        {
                            "database": "app",
                            "owner": "app",
                            "encoding": "UTF8",
                            "walSegmentSize": f(32, maximum=1024, minimum=1),
                            "secret": {"name!": "s"},
                            "postInitSQLRefs": {"configMapRefs": [{"key!": "a", "name!": "b"}]},
                            "builtinLocale?": "C",
                            "localeProvider?": "icu",
                        },
                        rules=[
                            (
                                "!has(self.builtinLocale) || self.localeProvider == 'builtin'",
                                "builtinLocale is only available when localeProvider is set to `builtin`",
                            )
                        ],
                    ),
                    "recovery?": {"source": "x"},
                },
                "postgresql": {
                    "parameters": mapping({"max_connections": "100"}),
                    "pg_hba": ["host all all all md5"],
                    "synchronous": {
                        "method!": f("any", enum=["any", "first"]),
                        "number!": f(
                            1,
                            rules=[
                                ("self > 0", "The number of synchronous replicas should be greater than zero")
                            ],
                        ),
                        "dataDurability": f("required", enum=["required", "preferred"]),
                    },
                },
                "backup": {
                    "barmanObjectStore": _S3,
                    "retentionPolicy": f("30d", pattern=r"^[1-9][0-9]*[dwm]$"),
                    "target": f(
                        "prefer-standby", default="prefer-standby", enum=["primary", "prefer-standby"]
                    ),
                },
                "affinity": {
                    "podAntiAffinityType": "preferred",
                    "tolerations": [toleration()],
                    "nodeSelector": mapping({"a": "b"}),
                },
                "managed": {
                    "roles": [
                        {
                            "name!": "r",
                            "ensure": f("present", default="present", enum=["present", "absent"]),
                            "connectionLimit": f(-1, format="int64", default=-1),
                            "inherit": f(True, default=True),
                            "validUntil": f(TIME, format="date-time"),
                        }
                    ],
                    "services": {
                        "disabledDefaultServices": f([f("ro", enum=["rw", "r", "ro"])]),
                        "additional": [
                            {
                                "selectorType!": f("rw", enum=["rw", "r", "ro"]),
                                "serviceTemplate!": {
                                    "metadata": {"name": "x"},
                                    "spec": {
                                        "ports": f(
                                            [
                                                {
                                                    "port!": f(5432, format="int32"),
                                                    "protocol": f("TCP", default="TCP"),
                                                    "targetPort": int_or_string(5432),
                                                }
                                            ],
                                            keys=["port", "protocol"],
                                        )
                                    },
                                },
                                "updateStrategy": f("patch", default="patch", enum=["patch", "replace"]),
                            }
                        ],
                    },
                },
                "resources": resources(),
                "env": [{"name!": "A", "value": "b"}],
                "primaryUpdateStrategy": f(
                    "unsupervised", default="unsupervised", enum=["unsupervised", "supervised"]
                ),
                "minSyncReplicas": f(0, default=0, minimum=0),
                "startDelay": f(3600, format="int32", default=3600),
                "failoverDelay": f(0, format="int32", default=0),
                "enablePDB": f(True, default=True),
                "postgresUID": f(26, format="int64", default=26),
                "monitoring": {
                    "enablePodMonitor": f(False, default=False),
                    "customQueriesConfigMap": [{"key!": "a", "name!": "b"}],
                },
                "tablespaces": [
                    {"name!": "t", "storage!": _PG_STORAGE, "temporary": f(False, default=False)}
                ],
                "logLevel": f("info", default="info", enum=["error", "warning", "info", "debug", "trace"]),
            },
            rules=[
                ("self.instances >= 1", "instances must be positive"),
                (
                    "!has(self.storage) || !has(oldSelf.storage) || !has(oldSelf.storage.storageClass) || self.storage.storageClass == oldSelf.storage.storageClass",
                    "storageClass is immutable",
                ),
            ],
        ),
        status={
            "instances": 3,
            "readyInstances": 3,
            "phase": "x",
            "conditions": conditions(is_map=False),
            "instancesStatus": f({"healthy": ["a"]}, is_map=True),
            "poolerIntegrations": {"pgBouncerIntegration": {"secrets": ["a"]}},
            "certificates": {"expirations": mapping({"a": "b"})},
            "managedRolesStatus": {
                "byStatus": f({"a": ["b"]}, is_map=True),
                "passwordStatus": f({"x": {"transactionID": f(1, format="int64")}}, is_map=True),
            },
            "labelSelector": "a=b",
        },
        scale=(".spec.instances", ".status.instances"),
        columns=(
            AGE,
            "Instances integer .status.instances",
            "Ready integer .status.readyInstances",
            "Status string .status.phase",
            "Primary string .status.currentPrimary",
        ),
        samples=({"spec": {"instances": 1, "storage": {"size": "1Gi"}}}, {"spec": {}}),
    ),
    define(
        "postgres",
        "PgBackup",
        f(
            {
                "cluster!": {"name!": "main"},
                "method": f(
                    "barmanObjectStore",
                    default="barmanObjectStore",
                    enum=["barmanObjectStore", "volumeSnapshot", "plugin"],
                ),
                "online": True,
                "target": f("primary", enum=["primary", "prefer-standby"]),
                "pluginConfiguration": {"name!": "p", "parameters": mapping({"a": "b"})},
                "onlineConfiguration": {"immediateCheckpoint": True, "waitForArchive": f(True, default=True)},
            },
            rules=[("oldSelf == self", "BackupSpec is immutable once set")],
        ),
        status={
            "phase": "x",
            "startedAt": f(TIME, format="date-time"),
            "snapshotBackupStatus": {"elements": [{"name!": "a", "type!": "b"}]},
            "backupLabelFile": f("YQ==", format="byte"),
        },
        columns=(
            AGE,
            "Cluster string .spec.cluster.name",
            "Method string .spec.method",
            "Phase string .status.phase",
            "Error string .status.error",
        ),
    ),
    define(
        "postgres",
        "ScheduledBackup",
        {
            "cluster!": {"name!": "main"},
            "schedule!": "0 0 0 * * *",
            "suspend": False,
            "immediate": True,
            "backupOwnerReference": f("none", default="none", enum=["none", "self", "cluster"]),
            "method": f(
                "plugin", default="barmanObjectStore", enum=["barmanObjectStore", "volumeSnapshot", "plugin"]
            ),
        },
        status={
            "lastCheckTime": f(TIME, format="date-time"),
            "nextScheduleTime": f(TIME, format="date-time"),
        },
        columns=(AGE, "Cluster string .spec.cluster.name", "Last_Backup date .status.lastScheduleTime"),
    ),
    define(
        "postgres",
        "Pooler",
        {
            "cluster!": {"name!": "main"},
            "type": f("rw", default="rw", enum=["rw", "ro"]),
            "instances": f(1, default=1, format="int32"),
            "pgbouncer!": f(
                {
                    "poolMode": f("session", default="session", enum=["session", "transaction"]),
                    "parameters": mapping({"a": "b"}),
                    "authQuerySecret": {"name!": "x"},
                    "authQuery": "SELECT",
                    "paused": f(False, default=False),
                },
                rules=["has(self.authQuerySecret) == has(self.authQuery)"],
            ),
            "template": pod_template(),
            "deploymentStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": int_or_string(1)}},
        },
        status={"instances": f(1, format="int32"), "secrets": {"serverTLS": {"name": "a", "version": "1"}}},
        scale=(".spec.instances", ".status.instances"),
        columns=(AGE, "Cluster string .spec.cluster.name", "Type string .spec.type"),
    ),
]
