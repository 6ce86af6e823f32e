"""CRDs in the style of projects for backups and snapshots."""

from __future__ import annotations

from .blocks import AGE, TIME, define, label_selector, labels
from .schemas import anything, f, mapping

CASES = [
    define(
        "backup",
        "Backup",
        {
            "includedNamespaces": f(["*"], nullable=True),
            "excludedResources": f(["x"], nullable=True),
            "labelSelector": f(label_selector().sample, nullable=True, map_type="atomic"),
            "orLabelSelectors": f([label_selector()], nullable=True),
            "snapshotVolumes": f(True, nullable=True),
            "ttl": "720h0m0s",
            "includeClusterResources": f(False, nullable=True),
            "hooks": {
                "resources": f(
                    [
                        {
                            "name!": "h",
                            "includedNamespaces": f(["a"], nullable=True),
                            "pre": [
                                {
                                    "exec!": {
                                        "command!": f(["x"], minItems=1),
                                        "onError": f("Fail", enum=["Continue", "Fail"]),
                                        "timeout": "1s",
                                    }
                                }
                            ],
                        }
                    ],
                    nullable=True,
                )
            },
            "orderedResources": f({"pods": "a"}, is_map=True, nullable=True),
            "resourcePolicy": f({"kind!": "ConfigMap", "name!": "x"}, map_type="atomic"),
            "metadata": {"labels": labels()},
            "defaultVolumesToFsBackup": f(True, nullable=True),
            "uploaderConfig": f({"parallelFilesUpload": 4}, nullable=True),
        },
        status={
            "phase": f("New", enum=["New", "FailedValidation", "InProgress", "Completed"]),
            "startTimestamp": f(TIME, format="date-time", nullable=True),
            "progress": f({"itemsBackedUp": 1}, nullable=True),
            "validationErrors": f(["a"], nullable=True),
        },
        columns=("Status string .status.phase", "Created date .status.startTimestamp", AGE),
    ),
    define(
        "backup",
        "Restore",
        {
            "backupName": "b",
            "existingResourcePolicy": f("none", nullable=True),
            "namespaceMapping": mapping({"a": "b"}),
            "restorePVs": f(True, nullable=True),
            "restoreStatus": f({"includedResources": f(["a"], nullable=True)}, nullable=True),
            "hooks": {
                "resources": [
                    {
                        "name!": "a",
                        "postHooks": [
                            {
                                "init": {
                                    "initContainers": f([anything({"name": "x"})], type="array"),
                                    "timeout": "1s",
                                },
                                "exec?": {
                                    "command!": f(["a"], minItems=1),
                                    "waitForReady": f(True, nullable=True),
                                },
                            }
                        ],
                    }
                ]
            },
        },
        status={
            "phase": f("New", enum=["New", "Completed"]),
            "warnings": 1,
            "completionTimestamp": f(TIME, format="date-time", nullable=True),
        },
    ),
    define(
        "backup",
        "BackupSchedule",
        {
            "schedule!": "0 1 * * *",
            "paused": False,
            "template!": {
                "includedNamespaces": f(["a"], nullable=True),
                "ttl": "1h",
                "csiSnapshotTimeout": "10m",
            },
            "useOwnerReferencesInBackup": f(True, nullable=True),
            "skipImmediately": True,
        },
        status={
            "phase": f("Enabled", enum=["New", "Enabled", "FailedValidation"]),
            "lastBackup": f(TIME, format="date-time", nullable=True),
        },
        columns=(
            "Status string .status.phase",
            "Schedule string .spec.schedule",
            "LastBackup date .status.lastBackup",
            AGE,
            "Paused boolean .spec.paused",
        ),
    ),
    define(
        "backup",
        "BackupLocation",
        {
            "provider!": "aws",
            "objectStorage!": {"bucket!": "b", "prefix": "p", "caCert": f("YQ==", format="byte")},
            "config": mapping({"a": "b"}),
            "credential": f({"key!": "a", "name": f("x", default="")}, map_type="atomic"),
            "default": True,
            "accessMode": f("ReadWrite", enum=["ReadOnly", "ReadWrite"]),
            "backupSyncPeriod": f("1m", nullable=True),
            "validationFrequency": f("1m", nullable=True),
        },
        status={
            "phase": f("Available", enum=["Available", "Unavailable"]),
            "lastSyncedTime": f(TIME, format="date-time", nullable=True),
        },
        columns=(
            "Phase string .status.phase",
            "Last_Validated date .status.lastValidationTime",
            "Default boolean .spec.default",
        ),
        names={"shortNames": ["stylebsl"]},
    ),
    define(
        "snapshots",
        "VolumeSnapshot",
        f(
            {
                "source!": f(
                    {
                        "persistentVolumeClaimName": f(
                            "a", rules=[("self == oldSelf", "persistentVolumeClaimName is immutable")]
                        ),
                        "volumeSnapshotContentName?": f(
                            "b", rules=[("self == oldSelf", "volumeSnapshotContentName is immutable")]
                        ),
                    },
                    oneOf=[
                        {"required": ["persistentVolumeClaimName"]},
                        {"required": ["volumeSnapshotContentName"]},
                    ],
                    rules=[
                        (
                            "!has(oldSelf.persistentVolumeClaimName) || has(self.persistentVolumeClaimName)",
                            "persistentVolumeClaimName is required once set",
                        ),
                        (
                            "(has(self.volumeSnapshotContentName) && !has(self.persistentVolumeClaimName)) || (!has(self.volumeSnapshotContentName) && has(self.persistentVolumeClaimName))",
                            "exactly one",
                        ),
                    ],
                ),
                "volumeSnapshotClassName": f(
                    "fast",
                    rules=[
                        ("size(self) > 0", "volumeSnapshotClassName must not be the empty string when set")
                    ],
                ),
            }
        ),
        status={
            "readyToUse": True,
            "restoreSize": f(
                "1Gi",
                type="string",
                pattern=r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            ),
            "creationTime": f(TIME, format="date-time"),
            "error": {"message": "m", "time": f(TIME, format="date-time")},
        },
        columns=(
            "ReadyToUse boolean .status.readyToUse",
            "SourcePVC string .spec.source.persistentVolumeClaimName",
            "RestoreSize string .status.restoreSize",
            "CreationTime date .status.creationTime",
            AGE,
        ),
        names={"shortNames": ["stylevsnap"]},
    ),
    define(
        "storage",
        "StoragePool",
        anything(
            {"replicated": {"size": 3}},
            properties={
                "deviceClass": {"type": "string", "nullable": True},
                "replicated": {
                    "type": "object",
                    "properties": {
                        "size": {"type": "integer", "minimum": 0},
                        "hybridStorage": {
                            "type": "object",
                            "nullable": True,
                            "required": ["primaryDeviceClass"],
                            "properties": {"primaryDeviceClass": {"type": "string", "minLength": 1}},
                        },
                    },
                },
                "erasureCoded": {
                    "type": "object",
                    "required": ["codingChunks", "dataChunks"],
                    "properties": {
                        "codingChunks": {"type": "integer", "minimum": 0},
                        "dataChunks": {"type": "integer", "minimum": 0},
                    },
                },
                "quotas": {
                    "type": "object",
                    "nullable": True,
                    "properties": {
                        "maxSize": {"type": "string", "pattern": r"^[0-9]+[\.]?[0-9]*([KMGTPE]i|[kMGTPE])?$"}
                    },
                },
                "parameters": {
                    "type": "object",
                    "nullable": True,
                    "additionalProperties": {"type": "string"},
                },
            },
        ),
        status=anything({"phase": "Ready"}),
        columns=("Phase string .status.phase", "Type string .status.info.type", AGE),
        samples=(
            {"spec": {"deviceClass": None, "quotas": None}},
            {"spec": {"erasureCoded": {"dataChunks": 2, "codingChunks": 1}, "unknown": {"kept": True}}},
            {"spec": {"replicated": {"size": -1, "other": 1}}},
        ),
    ),
]
