"""CRDs in the style of projects for cloud resources."""

from __future__ import annotations

from .blocks import AGE, READY, TIME, conditions, define, labels, status
from .schemas import anything, f, mapping

_REF = {
    "name!": "default",
    "policy": {
        "resolution": f("Required", default="Required", enum=["Required", "Optional"]),
        "resolve": f("Always", enum=["Always", "IfNotPresent"]),
    },
}


def _managed(parameters: dict[str, object]) -> object:
    """A managed resource with `forProvider` and `initProvider`."""
    optional = {key.rstrip("!"): value for key, value in parameters.items()}
    required = [key[:-1] for key in parameters if key.endswith("!")]
    return f(
        {
            "forProvider!": optional,
            "initProvider": {**optional},
            "deletionPolicy": f("Delete", default="Delete", enum=["Orphan", "Delete"]),
            "managementPolicies": f(
                [f("*", enum=["Observe", "Create", "Update", "Delete", "LateInitialize", "*"])], default=["*"]
            ),
            "providerConfigRef": f(_REF, default={"name": "default"}),
            "writeConnectionSecretToRef": {"name!": "a", "namespace!": "b"},
        },
        rules=[
            (
                f"!('*' in self.managementPolicies || 'Create' in self.managementPolicies || 'Update' in self.managementPolicies) || has(self.forProvider.{name}) || (has(self.initProvider) && has(self.initProvider.{name}))",
                f"spec.forProvider.{name} is a required parameter",
            )
            for name in required
        ],
    )


_XP_STATUS = {
    "conditions": f(
        [
            {
                "type!": "Ready",
                "status!": "True",
                "lastTransitionTime!": f(TIME, format="date-time"),
                "reason!": "r",
                "message": "m",
                "observedGeneration": f(1, format="int64"),
            }
        ],
        keys=["type"],
    ),
    "atProvider": {"id": "x", "tagsAll": f({"a": "b"}, is_map=True, map_type="granular")},
    "observedGeneration": f(1, format="int64"),
}
_XP_COLUMNS = (
    'Synced string .status.conditions[?(@.type=="Synced")].status',
    READY,
    "External-Name string .metadata.annotations.crossplane\\.example\\.com/external-name",
    AGE,
)

CASES = [
    define(
        "apiext",
        "CompositeSchema",
        {
            "group!": "a.example.com",
            "names!": {"plural!": "xs", "kind!": "X", "shortNames": ["x"], "singular": "x"},
            "claimNames": {"plural!": "cs", "kind!": "C"},
            "connectionSecretKeys": ["a"],
            "defaultCompositionRef": {"name!": "d"},
            "versions!": [
                {
                    "name!": "v1",
                    "served!": True,
                    "referenceable!": True,
                    "schema": {"openAPIV3Schema": anything({"type": "object"})},
                    "additionalPrinterColumns": [
                        {"name!": "A", "type!": "string", "jsonPath!": ".x", "priority": f(0, format="int32")}
                    ],
                }
            ],
            "conversion": {
                "strategy!": f("None", default="None", enum=["None", "Webhook"]),
                "webhook?": {"conversionReviewVersions!": ["v1"]},
            },
            "scope": f(
                "LegacyCluster", default="LegacyCluster", enum=["LegacyCluster", "Namespaced", "Cluster"]
            ),
        },
        status=status(controllers={"compositeResourceType": {"apiVersion!": "a", "kind!": "b"}}),
        columns=(
            'Established string .status.conditions[?(@.type=="Established")].status',
            'Offered string .status.conditions[?(@.type=="Offered")].status',
            AGE,
        ),
        scope="Cluster",
        names={"shortNames": ["stylexrd"], "categories": ["style-crossplane"]},
        root={
            "x-kubernetes-validations": [
                {
                    "rule": "self.spec.group == oldSelf.spec.group",
                    "message": "group is immutable",
                    "fieldPath": ".spec.group",
                }
            ]
        },
    ),
    define(
        "apiext",
        "Composition",
        f(
            {
                "compositeTypeRef!": f(
                    {"apiVersion!": "a/v1", "kind!": "X"}, rules=[("self == oldSelf", "Value is immutable")]
                ),
                "mode": f("Pipeline", default="Pipeline", enum=["Resources", "Pipeline"]),
                "pipeline": f(
                    [
                        {
                            "step!": f("a"),
                            "functionRef!": {"name!": "f"},
                            "input": anything(
                                {"apiVersion": "a/v1", "kind": "In", "resources": [1]}, embedded=True
                            ),
                            "credentials": f(
                                [
                                    {
                                        "name!": "c",
                                        "source!": f("Secret", enum=["None", "Secret"]),
                                        "secretRef": {"name!": "a", "namespace!": "b"},
                                    }
                                ],
                                keys=["name"],
                            ),
                        }
                    ],
                    keys=["step"],
                    minItems=1,
                    maxItems=99,
                ),
                "writeConnectionSecretsToNamespace": "x",
            }
        ),
        scope="Cluster",
        columns=(
            "XR-KIND string .spec.compositeTypeRef.kind",
            "XR-APIVERSION string .spec.compositeTypeRef.apiVersion",
            AGE,
        ),
    ),
    define(
        "cloud",
        "ProviderConfig",
        {
            "credentials!": {
                "source!": f("Secret", enum=["None", "Secret", "IRSA", "Upbound"]),
                "secretRef": {"name!": "a", "namespace!": "b", "key!": "c"},
                "env": {"name!": "x"},
            },
            "assumeRoleChain": [
                {"roleARN": "a", "tags": [{"key!": "a", "value!": "b"}], "transitiveTagKeys": ["a"]}
            ],
            "endpoint": {
                "url!": f({"type!": f("Static", enum=["Static", "Dynamic"]), "static": "x"}),
                "partitionId": "p",
            },
            "skip_metadata_api_check": True,
        },
        status={"users": f(1, format="int64"), "conditions": conditions()},
        scope="Cluster",
        version="v1beta1",
        columns=(AGE, "Secret-Name string .spec.credentials.secretRef.name 1"),
    ),
    define(
        "cloud",
        "ManagedBucket",
        _managed(
            {
                "region!": "eu-1",
                "forceDestroy": False,
                "tags": f({"a": "b"}, is_map=True, map_type="granular"),
                "acl": "private",
                "objectLockEnabled": True,
            }
        ),
        status=_XP_STATUS,
        columns=_XP_COLUMNS,
        scope="Cluster",
        version="v1beta1",
        names={"categories": ["style-managed", "style-cloud"]},
    ),
    define(
        "cloud",
        "ManagedInstance",
        _managed(
            {
                "region!": "eu-1",
                "instanceClass!": "small",
                "allocatedStorage": f(20.5),
                "passwordSecretRef": {"key!": "a", "name!": "b", "namespace!": "c"},
                "subnetIds": ["a"],
                "subnetIdRefs": [_REF],
                "subnetIdSelector": {
                    "matchControllerRef": True,
                    "matchLabels": mapping({"a": "b"}),
                    "policy": _REF["policy"],
                },
                "restoreToPointInTime": [{"useLatestRestorableTime": True}],
            }
        ),
        status=_XP_STATUS,
        columns=_XP_COLUMNS,
        scope="Cluster",
        version="v1beta2",
        other_versions=({"name": "v1beta1"},),
    ),
    define(
        "cloud",
        "ProviderPackage",
        {
            "package!": f(
                "xpkg.example.com/a:v1",
                rules=[("self.matches('^[^ ]+$')", "must be a reference")],
                maxLength=200,
            ),
            "packagePullPolicy": f("IfNotPresent", default="IfNotPresent"),
            "revisionActivationPolicy": f("Automatic", default="Automatic"),
            "revisionHistoryLimit": f(1, default=1, format="int64"),
            "packagePullSecrets": [{"name": f("a", default="")}],
            "ignoreCrossplaneConstraints": f(False, default=False),
            "skipDependencyResolution": f(False, default=False),
            "runtimeConfigRef": f(
                {
                    "apiVersion": f("pkg/v1beta1", default="pkg/v1beta1"),
                    "kind": f("RuntimeConfig", default="RuntimeConfig"),
                    "name!": "x",
                },
                default={"name": "default"},
            ),
            "commonLabels": labels(),
        },
        status={
            "conditions": conditions(),
            "currentRevision": "x",
            "appliedImageConfigRefs": [{"name!": "a", "reason!": "b"}],
        },
        scope="Cluster",
        columns=(
            'Installed string .status.conditions[?(@.type=="Installed")].status',
            "Package string .spec.package",
            AGE,
        ),
    ),
]
