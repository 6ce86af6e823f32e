"""CRDs in the style of projects for continuous delivery."""

from __future__ import annotations

from .blocks import AGE, READY, TIME, define, label_selector, labels, status
from .schemas import anything, f, int_or_string, mapping, quantity, untyped

FLUX_DURATION = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
_SOURCE = {
    "repoURL!": "https://git.example.com/x.git",
    "path": "deploy",
    "targetRevision": "HEAD",
    "helm": {
        "valueFiles": ["values.yaml"],
        "parameters": [{"name": "a", "value": "b", "forceString": True}],
        "valuesObject": anything({"a": [1, {"b": None}]}),
        "releaseName": "r",
    },
    "kustomize": {
        "images": ["a=b"],
        "patches": [
            {
                "patch": "x",
                "options": f({"allowNameChange": True}, is_map=True),
                "target": {"kind": "Deployment", "labelSelector": "a=b"},
            }
        ],
        "replicas": [{"count!": int_or_string(2), "name!": "web"}],
    },
    "directory": {"recurse": True, "jsonnet": {"extVars": [{"name!": "a", "value!": "b", "code": True}]}},
}
_APPLICATION = {
    "project!": "default",
    "source": _SOURCE,
    "destination!": {"server": "https://kubernetes.example.com", "namespace": "x"},
    "syncPolicy": {
        "automated": {"prune": True, "selfHeal": True},
        "syncOptions": ["CreateNamespace=true"],
        "retry": {
            "limit": f(5, format="int64"),
            "backoff": {"duration": "5s", "factor": f(2, format="int64")},
        },
        "managedNamespaceMetadata": {"labels": labels()},
    },
    "ignoreDifferences": [
        {
            "group": "apps",
            "kind!": "Deployment",
            "jsonPointers": ["/spec/replicas"],
            "managedFieldsManagers": ["m"],
        }
    ],
    "info": [{"name!": "a", "value!": "b"}],
    "revisionHistoryLimit": f(10, format="int64"),
}
_FLUX_REF = {
    "kind!": f("GitRepository", enum=["GitRepository", "Bucket", "OCIRepository"]),
    "name!": "app",
    "namespace": f("x", maxLength=63, minLength=1),
    "apiVersion": "v1",
}
_DEPENDS = [{"name!": "base", "namespace": "x", "readyExpr": "true"}]
_FLUX_STATUS = status(
    lastHandledReconcileAt="x",
    lastAppliedRevision="main@sha1:1",
    inventory={"entries!": [{"id!": "a", "v!": "v1"}]},
)
_FLUX_COLUMNS = (AGE, READY, 'Status string .status.conditions[?(@.type=="Ready")].message')

CASES = [
    define(
        "gitops",
        "Application",
        _APPLICATION,
        top={
            "operation": {
                "initiatedBy": {"username": "x"},
                "sync": {"prune": True, "resources": [{"kind!": "a", "name!": "b"}]},
            }
        },
        status={
            "health": {"status": "Healthy"},
            "sync": {"status!": "Synced", "comparedTo": {"source": _SOURCE}},
            "history": [
                {"id!": f(1, format="int64"), "deployedAt!": f(TIME, format="date-time"), "revision": "x"}
            ],
            "observedAt": f(TIME, format="date-time"),
        },
        columns=(
            "Sync_Status string .status.sync.status",
            "Health_Status string .status.health.status",
            "Revision string .status.sync.revision 10",
            "Project string .spec.project 10",
        ),
        version="v1alpha1",
        names={"shortNames": ["styleapp"]},
    ),
    define(
        "gitops",
        "AppProject",
        {
            "clusterResourceWhitelist": [{"group!": "*", "kind!": "*"}],
            "destinations": [{"server": "*", "namespace": "*"}],
            "roles": [
                {
                    "name!": "r",
                    "groups": ["g"],
                    "policies": ["p"],
                    "jwtTokens": [{"iat!": f(1, format="int64"), "id": "x"}],
                }
            ],
            "sourceRepos": ["*"],
            "syncWindows": [{"kind": "allow", "schedule": "* * * * *", "duration": "1h", "manualSync": True}],
            "orphanedResources": {"warn": True, "ignore": [{"kind": "a"}]},
        },
        status={"jwtTokensByRole": f({"r": {"items": [{"iat!": f(1, format="int64")}]}}, is_map=True)},
        version="v1alpha1",
    ),
    define(
        "gitops",
        "ApplicationSet",
        {
            "generators!": [
                {
                    "list": {"elements": [untyped({"cluster": "a"})], "elementsYaml": "x"},
                    "matrix?": {"generators!": [anything({"git": {}})]},
                    "selector": label_selector(),
                }
            ],
            "template!": {
                "metadata!": {"name": "{{a}}", "labels": labels(), "finalizers": ["a/b"]},
                "spec!": _APPLICATION,
            },
            "goTemplate": True,
            "strategy": {
                "type": "RollingSync",
                "rollingSync": {
                    "steps": [
                        {
                            "maxUpdate": int_or_string("10%"),
                            "matchExpressions": [{"key": "a", "values": ["b"]}],
                        }
                    ]
                },
            },
            "syncPolicy": {
                "applicationsSync": f("sync", enum=["create-only", "create-update", "create-delete", "sync"])
            },
        },
        status={
            "conditions": [
                {
                    "type!": "x",
                    "status!": "True",
                    "message!": "m",
                    "reason!": "r",
                    "lastTransitionTime": f(TIME, format="date-time"),
                }
            ]
        },
        version="v1alpha1",
    ),
    define(
        "sources",
        "GitRepository",
        f(
            {
                "url!": f("https://git.example.com/x", pattern="^(http|https|ssh)://.*$"),
                "interval!": f("5m", pattern=FLUX_DURATION),
                "ref": {"branch": "main", "semver": ">=1"},
                "secretRef": {"name!": "s"},
                "timeout": f("60s", default="60s", pattern=r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$"),
                "ignore": "x",
                "include": [{"repository!": {"name!": "a"}, "fromPath": "x"}],
                "verify": {
                    "mode": f("HEAD", default="HEAD", enum=["head", "HEAD", "Tag", "TagAndHEAD"]),
                    "secretRef!": {"name!": "s"},
                },
                "provider": f("generic", enum=["generic", "azure", "github"]),
                "suspend": False,
                "sparseCheckout": ["a"],
                "recurseSubmodules": True,
            },
            rules=[
                (
                    "!has(self.provider) || self.provider != 'azure' || has(self.secretRef)",
                    "azure needs a secret",
                )
            ],
        ),
        status=f(
            {
                **_FLUX_STATUS,
                "artifact": {
                    "digest": f(
                        "sha256:" + "a" * 64, pattern="^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$"
                    ),
                    "lastUpdateTime!": f(TIME, format="date-time"),
                    "path!": "p",
                    "revision!": "r",
                    "url!": "u",
                    "size": f(1, format="int64"),
                    "metadata": mapping({"a": "b"}),
                },
            },
            default={"observedGeneration": -1},
        ),
        columns=("URL string .spec.url", *_FLUX_COLUMNS),
        names={"shortNames": ["stylegit"]},
        plural="gitrepositories",
        other_versions=(
            {
                "name": "v1beta2",
                "deprecated": True,
                "deprecationWarning": "v1beta2 GitRepository is deprecated, upgrade to v1",
            },
            {"name": "v1beta1", "served": False},
        ),
    ),
    define(
        "sources",
        "HelmRepository",
        f(
            {
                "url!": f("https://c.example.com", pattern="^(http|https|oci)://.*$"),
                "interval": f("5m", pattern=FLUX_DURATION),
                "type": f("default", enum=["default", "oci"]),
                "passCredentials": True,
                "accessFrom": {"namespaceSelectors!": [{"matchLabels": labels()}]},
                "provider": f("generic", default="generic", enum=["generic", "aws"]),
            }
        ),
        status=f(_FLUX_STATUS, default={"observedGeneration": -1}),
        columns=("URL string .spec.url", *_FLUX_COLUMNS),
        plural="helmrepositories",
    ),
    define(
        "helm",
        "HelmRelease",
        f(
            {
                "chart": {
                    "spec!": {
                        "chart!": f("app", minLength=1, maxLength=2048),
                        "version": f("*", default="*"),
                        "sourceRef!": {
                            "kind": f("HelmRepository", enum=["HelmRepository", "GitRepository"]),
                            "name!": f("x", maxLength=253, minLength=1),
                        },
                        "reconcileStrategy": f(
                            "ChartVersion", default="ChartVersion", enum=["ChartVersion", "Revision"]
                        ),
                    },
                    "metadata": {"labels": labels()},
                },
                "chartRef?": _FLUX_REF,
                "interval!": f("5m", pattern=FLUX_DURATION),
                "values": untyped({"a": {"b": [1, None, True]}}),
                "valuesFrom": [
                    {
                        "kind!": f("Secret", enum=["Secret", "ConfigMap"]),
                        "name!": f("v", maxLength=253, minLength=1),
                        "valuesKey": f("k", maxLength=253, pattern=r"^[\-._a-zA-Z0-9]+$"),
                        "targetPath": f(
                            "a.b", maxLength=250, pattern=r"^([a-zA-Z0-9_\-.\\\/]|\[[0-9]{1,5}\])+$"
                        ),
                    }
                ],
                "install": {
                    "createNamespace": True,
                    "crds": f("Create", enum=["Skip", "Create", "CreateReplace"]),
                    "remediation": {"retries": 3},
                },
                "upgrade": {"cleanupOnFail": True},
                "postRenderers": [
                    {
                        "kustomize": {
                            "patches": [{"patch!": "x", "target": {"kind": "a"}}],
                            "images": [{"name!": "a", "newTag": "b"}],
                        }
                    }
                ],
                "dependsOn": _DEPENDS,
                "maxHistory": 5,
                "releaseName": f("r", maxLength=53, minLength=1),
                "driftDetection": {
                    "mode": f("warn", enum=["enabled", "warn", "disabled"]),
                    "ignore": [{"paths!": ["/a"]}],
                },
            },
            rules=[
                (
                    "(has(self.chart) && !has(self.chartRef)) || (!has(self.chart) && has(self.chartRef))",
                    "either chart or chartRef must be set",
                )
            ],
        ),
        status=f(
            {
                **_FLUX_STATUS,
                "history": [
                    {
                        "version!": 1,
                        "digest!": "d",
                        "firstDeployed!": f(TIME, format="date-time"),
                        "testHooks": f({"a": {"phase": "x"}}, is_map=True),
                    }
                ],
                "failures": f(1, format="int64"),
            },
            default={"observedGeneration": -1},
        ),
        columns=_FLUX_COLUMNS,
        version="v2",
        names={"shortNames": ["stylehr"]},
    ),
    define(
        "kustomize",
        "Kustomization",
        {
            "interval!": f("5m", pattern=FLUX_DURATION),
            "prune!": True,
            "sourceRef!": _FLUX_REF,
            "path": "./x",
            "patches": [{"patch!": "x", "target": {"name": "a"}}],
            "postBuild": {
                "substitute": mapping({"a": "b"}),
                "substituteFrom": [
                    {
                        "kind!": f("Secret", enum=["Secret", "ConfigMap"]),
                        "name!": f("a", minLength=1, maxLength=253),
                        "optional": f(False, default=False),
                    }
                ],
            },
            "healthChecks": [{"kind!": "Deployment", "name!": "a"}],
            "healthCheckExprs": [{"apiVersion!": "v1", "kind!": "K", "current!": "true"}],
            "decryption": {"provider!": f("sops", enum=["sops"])},
            "images": [{"name!": "a", "digest": "d"}],
            "force": f(False, default=False),
            "deletionPolicy": f("MirrorPrune", enum=["MirrorPrune", "Delete", "Orphan"]),
            "components": ["a"],
        },
        status=f(_FLUX_STATUS, default={"observedGeneration": -1}),
        columns=_FLUX_COLUMNS,
        names={"shortNames": ["styleks"]},
    ),
    define(
        "images",
        "ImagePolicy",
        f(
            {
                "imageRepositoryRef!": {"name!": "a"},
                "policy!": {
                    "semver": {"range!": "1.x"},
                    "numerical?": {"order": f("asc", default="asc", enum=["asc", "desc"])},
                },
                "filterTags": {"pattern": "x", "extract": "y"},
                "digestReflectionPolicy": f(
                    "Always", default="Never", enum=["Always", "IfNotPresent", "Never"]
                ),
                "interval": f("5m", pattern=FLUX_DURATION),
            },
            rules=[
                (
                    "!has(self.interval) || (has(self.digestReflectionPolicy) && self.digestReflectionPolicy == 'Always')",
                    "spec.interval is only accepted when spec.digestReflectionPolicy is set to 'Always'",
                ),
                (
                    "has(self.digestReflectionPolicy) && self.digestReflectionPolicy == 'Always' ? has(self.interval) : true",
                    "spec.interval must be set",
                ),
            ],
        ),
        status=f(status(latestRef={"name!": "a", "tag!": "b"}), default={"observedGeneration": -1}),
        plural="imagepolicies",
        columns=("Image string .status.latestRef.name", "Tag string .status.latestRef.tag", *_FLUX_COLUMNS),
        samples=(
            {
                "spec": {
                    "imageRepositoryRef": {"name": "a"},
                    "policy": {},
                    "digestReflectionPolicy": "Always",
                    "interval": "1m",
                }
            },
        ),
    ),
    define(
        "notify",
        "NotifyAlert",
        {
            "providerRef!": {"name!": f("slack", maxLength=53)},
            "eventSources!": [
                {
                    "kind!": f("HelmRelease", enum=["HelmRelease", "Kustomization"]),
                    "name!": f("*", maxLength=53, minLength=1),
                    "matchLabels": labels(),
                }
            ],
            "eventSeverity": f("info", default="info", enum=["info", "error"]),
            "inclusionList": ["a"],
            "summary": f("s", maxLength=255),
            "eventMetadata": mapping({"a": "b"}),
        },
        version="v1beta3",
        columns=(AGE,),
    ),
    define(
        "gitops",
        "QuotaClaim",
        f(
            {
                "limits!": f({"cpu": quantity("4"), "memory": quantity("8Gi")}, is_map=True, maxProperties=8),
                "window": f(
                    {
                        "from!": f(TIME, format="date-time"),
                        "until!": f("2026-01-01T08:00:00Z", format="date-time"),
                    }
                ),
                "tier": f("gold", enum=["gold", "silver"], default="silver"),
            },
            rules=[
                (
                    "!('cpu' in self.limits) || quantity(string(self.limits['cpu'])).compareTo(quantity('100')) <= 0",
                    "at most 100 CPUs",
                ),
                ("!has(self.window) || self.window.from < self.window.until", "the window is empty"),
                {
                    "rule": "oldSelf.hasValue() ? self.tier == oldSelf.value().tier : self.tier in ['gold', 'silver']",
                    "message": "tier is immutable",
                    "optionalOldSelf": True,
                },
            ],
        ),
        status=status(),
        version="v1alpha1",
    ),
]
