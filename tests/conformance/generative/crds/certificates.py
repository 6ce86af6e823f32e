"""CRDs in the style of projects for certificates, secrets and policies."""

from __future__ import annotations

from .blocks import AGE, NAME, READY, REASON, TIME, define, label_selector, object_ref, secret_key, status
from .schemas import anything, f, int_or_string, mapping, untyped

GROUP = "certs"
_KEY = {
    "algorithm": f("ECDSA", enum=["RSA", "ECDSA", "Ed25519"], default="RSA"),
    "encoding": f("PKCS8", enum=["PKCS1", "PKCS8"]),
    "rotationPolicy": f("Always", enum=["Never", "Always"], default="Never"),
    "size": f(256, minimum=0, maximum=8192),
}
_SOLVER = {
    "selector": {"dnsNames": ["example.com"], "matchLabels": mapping({"a": "b"})},
    "http01?": {"ingress": {"class": "web", "serviceType": "ClusterIP"}},
    "dns01": {
        "webhook": {
            "groupName!": "dns.example.com",
            "solverName!": "own",
            "config": untyped({"zones": [1, "two"]}),
        },
        "route53?": {"region!": "eu-1", "accessKeyIDSecretRef": secret_key()},
        "cnameStrategy": f("Follow", enum=["None", "Follow"]),
    },
}
_ISSUER = f(
    {
        "acme": {
            "server!": "https://acme.example.com/directory",
            "email": "ops@example.com",
            "privateKeySecretRef!": {"name!": "account", "key": "tls.key"},
            "externalAccountBinding?": {"keyID!": "x", "keySecretRef!": secret_key()},
            "solvers": [_SOLVER],
            "skipTLSVerify": False,
        },
        "ca?": {"secretName!": "ca", "crlDistributionPoints": ["http://crl.example.com"]},
        "selfSigned?": {"crlDistributionPoints": ["http://crl.example.com"]},
        "vault?": {
            "server!": "https://vault.example.com",
            "path!": "pki/sign",
            "caBundle": f("dG9rZW4=", format="byte"),
            "auth!": {"tokenSecretRef": secret_key(), "kubernetes": {"role!": "r", "mountPath": "/v1/auth"}},
        },
    }
)

CASES = [
    define(
        GROUP,
        "Certificate",
        f(
            {
                "secretName!": "web-tls",
                "issuerRef!": {"name!": "ca", "kind": "Issuer", "group": "certs.style.example.com"},
                "commonName": "example.com",
                "dnsNames": ["example.com", "www.example.com"],
                "ipAddresses": ["192.0.2.1"],
                "duration": "2160h",
                "renewBefore": "360h",
                "isCA": False,
                "usages": f([f("server auth", enum=["signing", "server auth", "client auth", "any"])]),
                "privateKey": _KEY,
                "keystores": {
                    "pkcs12": {"create!": True, "passwordSecretRef!": secret_key()},
                    "jks?": {"create!": False, "alias": "a"},
                },
                "subject": {"organizations": ["Example"], "serialNumber": "1"},
                "secretTemplate": {"labels": mapping({"a": "b"}), "annotations": mapping({"c": "d"})},
                "revisionHistoryLimit": f(3, format="int32", minimum=1),
                "additionalOutputFormats": f(
                    [{"type!": f("DER", enum=["DER", "CombinedPEM"])}], keys=["type"]
                ),
                "nameConstraints": {"critical": True, "permitted": {"dnsDomains": ["example.com"]}},
            },
            rules=[
                (
                    "!(has(self.duration) && has(self.renewBefore)) || self.duration != self.renewBefore",
                    "renewBefore must differ from duration",
                ),
                ("self.secretName == oldSelf.secretName", "secretName is immutable"),
            ],
        ),
        status=status(notAfter=f(TIME, format="date-time"), revision=1, nextPrivateKeySecretName="x"),
        columns=(
            READY,
            "Secret string .spec.secretName",
            "Issuer string .spec.issuerRef.name 1",
            'Status string .status.conditions[?(@.type=="Ready")].message 1',
            AGE,
        ),
        names={
            "shortNames": ["stylecert", "stylecerts"],
            "categories": ["style-certs"],
            "singular": "certificate",
        },
        selectable=(".spec.issuerRef.group", ".spec.issuerRef.kind", ".spec.issuerRef.name"),
    ),
    define(
        GROUP,
        "Issuer",
        _ISSUER,
        status=status(acme={"uri": "x", "lastRegisteredEmail": "a@b.example"}),
        columns=(READY, AGE),
        names={"categories": ["style-certs"]},
    ),
    define(
        GROUP,
        "ClusterIssuer",
        _ISSUER,
        status=status(),
        columns=(READY, AGE),
        scope="Cluster",
        samples=(
            {"spec": {"ca": {"secretName": "x"}}},
            {"spec": {"vault": {"server": "https://v", "path": "p", "auth": {}}}},
        ),
    ),
    define(
        GROUP,
        "CertificateRequest",
        f(
            {
                "request!": f("LS0tLS1CRUdJTg==", format="byte"),
                "issuerRef!": {"name!": "ca", "kind": "Issuer"},
                "uid": "0",
                "groups": f(["system:masters"], list_type="atomic"),
                "extra": f({"scopes": ["a", "b"]}, is_map=True),
                "isCA": True,
                "username": "ann",
            },
            rules=[
                {"rule": "self == oldSelf", "message": "spec is immutable", "reason": "FieldValueForbidden"}
            ],
        ),
        status=status(certificate=f("LS0t", format="byte"), failureTime=f(TIME, format="date-time")),
        columns=(
            'Approved string .status.conditions[?(@.type=="Approved")].status',
            READY,
            "Requester string .spec.username",
            AGE,
        ),
        names={"shortNames": ["stylecr"]},
    ),
    define(
        "acme",
        "Order",
        {
            "request!": f("LS0t", format="byte"),
            "dnsNames": f(["a.example.com"], minItems=1, maxItems=100, list_type="set"),
            "duration": f("24h", format="duration"),
            "profile": f("classic", maxLength=16, nullable=True),
        },
        status={
            "state": f(
                "valid", enum=["valid", "ready", "pending", "processing", "invalid", "expired", "errored"]
            ),
            "authorizations": [
                {
                    "url!": "https://a.example.com/1",
                    "wildcard": False,
                    "challenges": [{"token!": "t", "type!": "http-01", "url!": "u"}],
                }
            ],
            "url": f("https://a.example.com", format="uri"),
        },
        columns=("State string .status.state", "Issuer string .spec.issuerRef.name 1", AGE),
    ),
    define(
        "acme",
        "Challenge",
        {
            "type!": f("HTTP-01", enum=["HTTP-01", "DNS-01"]),
            "dnsName!": "a.example.com",
            "wildcard": f(False, default=False),
            "solver!": _SOLVER,
            "token!": f("abc", minLength=1),
            "url!": f("https://a.example.com/1", format="uri"),
        },
        status={
            "presented": True,
            "processing": False,
            "reason": "waiting",
            "state": f("pending", enum=["valid", "pending"]),
        },
        columns=("State string .status.state", "Domain string .spec.dnsName", AGE),
        version="v1beta1",
    ),
    define(
        "trust",
        "TrustBundle",
        {
            "sources!": f(
                [
                    f(
                        {
                            "configMap": f({"name": "ca", "key": "ca.crt"}, map_type="atomic"),
                            "inLine?": "text",
                            "secret?": {"name!": "s", "selector": label_selector(), "includeAllKeys": False},
                            "useDefaultCAs?": True,
                        },
                        map_type="atomic",
                        maxProperties=1,
                        minProperties=1,
                    )
                ],
                minItems=1,
                maxItems=100,
                list_type="atomic",
            ),
            "target": {
                "configMap": f(
                    {"key!": f("bundle.pem", minLength=1), "metadata": {"labels": mapping({"a": "b"})}},
                    rules=["self.key != ''"],
                ),
                "namespaceSelector": label_selector(),
                "additionalFormats": {
                    "jks": {
                        "key!": "x.jks",
                        "password": f(
                            "changeit", default="changeit", maxLength=128, minLength=1, nullable=True
                        ),
                    }
                },
            },
        },
        status=status(defaultCAVersion="1"),
        columns=(
            "Config_Map_Target string .spec.target.configMap.key",
            'Synced string .status.conditions[?(@.type=="Synced")].status',
            REASON,
            AGE,
        ),
        scope="Cluster",
        version="v1alpha1",
    ),
    define(
        "policy",
        "AdmissionPolicy",
        f(
            {
                "rules!": f(
                    [
                        {
                            "name!": f("check", maxLength=63),
                            "match": {
                                "any": [
                                    {
                                        "resources": {
                                            "kinds": ["Pod"],
                                            "namespaces": ["a*"],
                                            "selector": label_selector(),
                                        }
                                    }
                                ]
                            },
                            "exclude": {"all": [{"subjects": [{"kind!": "User", "name!": "ann"}]}]},
                            "validate": {
                                "message": "no",
                                "pattern": untyped({"spec": {"=(x)": "!y"}}),
                                "deny?": {"conditions": untyped({"any": []})},
                            },
                            "mutate?": {"patchesJson6902": "[]", "patchStrategicMerge": untyped({"a": 1})},
                            "context": [
                                {
                                    "name!": "cm",
                                    "configMap": {"name!": "x", "namespace": "y"},
                                    "apiCall?": {
                                        "urlPath!": "/x",
                                        "method": f("GET", enum=["GET", "POST"], default="GET"),
                                    },
                                }
                            ],
                        }
                    ],
                    maxItems=20,
                ),
                "background": f(True, default=True),
                "validationFailureAction": f(
                    "Audit", enum=["audit", "enforce", "Audit", "Enforce"], default="Audit"
                ),
                "failurePolicy": f("Fail", enum=["Ignore", "Fail"]),
                "webhookTimeoutSeconds": f(10, format="int32", minimum=1, maximum=30),
                "schemaValidation": True,
            },
        ),
        status=status(ready=True, rulecount={"validate!": 0, "mutate!": 0}, autogen=anything({"rules": [1]})),
        columns=(
            "Background boolean .spec.background",
            "Action string .spec.validationFailureAction",
            "Ready boolean .status.ready",
            "Timeout integer .spec.webhookTimeoutSeconds 1",
            AGE,
        ),
        plural="admissionpolicies",
        names={"shortNames": ["stylepol"], "categories": ["style-policies"]},
    ),
    define(
        "templates",
        "ConstraintTemplate",
        {
            "crd": {
                "spec": {
                    "names": {"kind": "RequiredLabels", "shortNames": ["rl"]},
                    "validation": f(
                        {
                            "legacySchema": f(False, default=False),
                            "openAPIV3Schema": anything({"type": "object", "properties": {}}),
                        },
                        default={},
                    ),
                }
            },
            "targets": [
                {
                    "target": "admission",
                    "rego": "package x",
                    "libs": ["lib"],
                    "code": f([{"engine!": "CEL", "source!": anything({"a": 1})}], keys=["engine"]),
                }
            ],
        },
        status={"byPod": [anything({"id": "a", "errors": [{"code": "x", "message": "y"}]})], "created": True},
        scope="Cluster",
        other_versions=({"name": "v1beta1"}, {"name": "v1alpha1", "served": False}),
    ),
    define(
        "secrets",
        "ExternalSecret",
        f(
            {
                "secretStoreRef": {
                    "name": f("main", maxLength=253, minLength=1, pattern=NAME),
                    "kind": f("SecretStore", enum=["SecretStore", "ClusterSecretStore"]),
                },
                "refreshInterval": f("1h0m0s", default="1h0m0s"),
                "refreshPolicy": f("Periodic", enum=["CreatedOnce", "Periodic", "OnChange"]),
                "target": f(
                    {
                        "name": f("out", maxLength=253, minLength=1),
                        "creationPolicy": f(
                            "Owner", enum=["Owner", "Orphan", "Merge", "None"], default="Owner"
                        ),
                        "deletionPolicy": f("Retain", enum=["Delete", "Merge", "Retain"], default="Retain"),
                        "immutable": False,
                        "template": {
                            "type": "Opaque",
                            "engineVersion": f("v2", enum=["v2"], default="v2"),
                            "mergePolicy": f("Replace", enum=["Replace", "Merge"], default="Replace"),
                            "data": mapping({"a": "{{ .a }}"}),
                            "metadata": {"labels": mapping({"a": "b"}), "finalizers?": ["x/y"]},
                            "templateFrom": [
                                {
                                    "configMap": {
                                        "name!": "t",
                                        "items!": [
                                            {
                                                "key!": "k",
                                                "templateAs": f(
                                                    "Values",
                                                    enum=["Values", "KeysAndValues"],
                                                    default="Values",
                                                ),
                                            }
                                        ],
                                    },
                                    "target": f("Data", default="Data"),
                                }
                            ],
                        },
                    },
                    default={"creationPolicy": "Owner", "deletionPolicy": "Retain"},
                ),
                "data": [
                    {
                        "secretKey!": f("password", maxLength=253, minLength=1, pattern=r"^[-._a-zA-Z0-9]+$"),
                        "remoteRef!": {
                            "key!": "db",
                            "property": "password",
                            "conversionStrategy": f(
                                "Default", enum=["Default", "Unicode"], default="Default"
                            ),
                            "decodingStrategy": f(
                                "None", enum=["Auto", "Base64", "Base64URL", "None"], default="None"
                            ),
                        },
                    }
                ],
                "dataFrom": [
                    {
                        "extract?": {"key!": "x", "conversionStrategy": f("Default", default="Default")},
                        "find": {"name": {"regexp": ".*"}, "tags": mapping({"a": "b"}), "path": "p"},
                        "rewrite": [
                            f(
                                {
                                    "regexp": {"source!": "a", "target!": "b"},
                                    "transform?": {"template!": "x"},
                                },
                                maxProperties=1,
                                minProperties=1,
                            )
                        ],
                    }
                ],
            }
        ),
        status=status(
            binding={"name": f("", default="")},
            refreshTime=f(TIME, format="date-time", nullable=True),
            syncedResourceVersion="1",
        ),
        columns=(
            "StoreType string .spec.secretStoreRef.kind",
            "Store string .spec.secretStoreRef.name",
            "Refresh string .spec.refreshInterval",
            REASON.replace(" 1", ""),
            READY,
        ),
        names={"shortNames": ["styles"], "categories": ["style-secrets"]},
        other_versions=(
            {"name": "v1beta1", "deprecated": True, "deprecationWarning": "v1beta1 is deprecated, use v1"},
        ),
        selectable=(".spec.secretStoreRef.name",),
    ),
    define(
        "secrets",
        "SecretStore",
        f(
            {
                "controller": "own",
                "provider!": f(
                    {
                        "aws": {
                            "service!": f("SecretsManager", enum=["SecretsManager", "ParameterStore"]),
                            "region!": "eu-1",
                            "auth": {"secretRef": {"accessKeyIDSecretRef": secret_key()}},
                            "sessionTags": f([{"key!": "a", "value!": "b"}]),
                        },
                        "vault?": {
                            "server!": "https://v",
                            "version": f("v2", enum=["v1", "v2"], default="v2"),
                            "caBundle": f("YQ==", format="byte"),
                            "auth": {"tokenSecretRef": secret_key()},
                        },
                        "fake?": {"data!": [{"key!": "a", "value": "b", "version": "1"}]},
                    },
                    maxProperties=1,
                    minProperties=1,
                ),
                "retrySettings": {"maxRetries": f(5, format="int32"), "retryInterval": "10s"},
                "conditions": [
                    {
                        "namespaces": f([f("a", maxLength=63, minLength=1, pattern=NAME)]),
                        "namespaceRegexes": ["a.*"],
                    }
                ],
                "refreshInterval": 3600,
            }
        ),
        status=status(capabilities="ReadWrite"),
        columns=(
            AGE,
            'Status string .status.conditions[?(@.type=="Ready")].reason',
            "Capabilities string .status.capabilities",
            READY,
        ),
    ),
    define(
        "secrets",
        "SealedSecret",
        {
            "encryptedData!": anything({"password": "AgBy"}),
            "template": {
                "data": mapping({"a": "b"}, nullable=True),
                "immutable": False,
                "metadata": anything({"labels": {"a": "b"}, "name": "x"}, nullable=True),
                "type": "Opaque",
            },
        },
        status={
            "conditions": [
                {"type!": "Synced", "status!": "True", "lastUpdateTime": f(TIME, format="date-time")}
            ],
            "observedGeneration": f(1, format="int64"),
        },
        columns=(
            "Status string .status.conditions[0].message",
            "Synced string .status.conditions[0].status",
            AGE,
        ),
        version="v1alpha1",
    ),
    define(
        "access",
        "AccessGrant",
        f(
            {
                "subjects!": f(
                    [
                        {
                            "kind!": f("User", enum=["User", "Group", "ServiceAccount"]),
                            "name!": f("ann", minLength=1),
                            "namespace": "a",
                        }
                    ],
                    list_type="map",
                    **{"x-kubernetes-list-map-keys": ["kind", "name"]},
                    minItems=1,
                    maxItems=16,
                ),
                "role!": f({"name!": "edit", "cluster": True}, map_type="atomic"),
                "expires": f(TIME, format="date-time"),
                "window": f("1h", format="duration"),
                "from": f("10.1.0.0/16", format="cidr"),
                "port": int_or_string("https", maxLength=15),
                "level": f(3, minimum=1, maximum=5, exclusiveMaximum=True),
                "share": f(0.5, minimum=0, maximum=1, multipleOf=0.25),
                "target": object_ref("Namespace", sectionName=f("a", maxLength=253)),
            },
            rules=[
                {
                    "rule": "self.subjects.all(s, s.kind != 'ServiceAccount' || has(s.namespace))",
                    "message": "service accounts need a namespace",
                    "fieldPath": ".subjects",
                },
                {
                    "rule": "!has(self.window) || self.window <= duration('24h')",
                    "messageExpression": "'window is longer than ' + '24h'",
                },
                {
                    "rule": "!has(oldSelf.role) || self.role == oldSelf.role",
                    "message": "role is immutable",
                    "reason": "FieldValueForbidden",
                    "fieldPath": ".role",
                },
                {"rule": "!has(self.from) || isCIDR(self.from)", "message": "from must be a CIDR"},
            ],
        ),
        status=status(granted=True, level=1.5),
        columns=(
            "Role string .spec.role.name",
            "Expires date .spec.expires",
            "Level integer/int32 .spec.level",
            "Share number/double .spec.share",
            "Granted boolean .status.granted",
            AGE,
        ),
    ),
]
