"""CRDs in the style of projects for service meshes."""

from __future__ import annotations

from .blocks import AGE, define, labels, object_ref, status
from .schemas import anything, f, mapping

_MESH_STATUS = anything({"conditions": [{"type": "Ready"}]})
_MATCH = {
    "uri": f(
        {"prefix": "/", "exact?": "a", "regex?": "b"},
        oneOf=[
            {"not": {"anyOf": [{"required": ["exact"]}, {"required": ["prefix"]}, {"required": ["regex"]}]}},
            {"required": ["exact"]},
            {"required": ["prefix"]},
            {"required": ["regex"]},
        ],
    ),
    "port": f(80, maximum=4294967295, minimum=0),
    "ignoreUriCase": True,
    "sourceLabels": labels(),
    "headers": f({"x": {"exact": "a"}}, is_map=True),
}
_DESTINATION = {"host!": "reviews", "port": {"number": f(80, maximum=4294967295, minimum=0)}, "subset": "v1"}
_TRAFFIC = {
    "loadBalancer": f(
        {
            "simple": f(
                "LEAST_REQUEST", enum=["UNSPECIFIED", "LEAST_CONN", "RANDOM", "ROUND_ROBIN", "LEAST_REQUEST"]
            ),
            "consistentHash?": {"httpHeaderName": "x", "minimumRingSize": f(1, minimum=0)},
            "warmupDurationSecs": f(
                "10s",
                rules=[("duration(self) >= duration('1ms')", "must be a valid duration greater than 1ms")],
            ),
        },
        oneOf=[
            {"not": {"anyOf": [{"required": ["simple"]}, {"required": ["consistentHash"]}]}},
            {"required": ["simple"]},
            {"required": ["consistentHash"]},
        ],
    ),
    "connectionPool": {
        "tcp": {
            "maxConnections": f(100, format="int32"),
            "connectTimeout": f(
                "30ms",
                rules=[("duration(self) >= duration('1ms')", "must be a valid duration greater than 1ms")],
            ),
        },
        "http": {"h2UpgradePolicy": f("DEFAULT", enum=["DEFAULT", "DO_NOT_UPGRADE", "UPGRADE"])},
    },
    "outlierDetection": {
        "consecutive5xxErrors": f(5, maximum=4294967295, minimum=0, nullable=True),
        "maxEjectionPercent": f(10, format="int32"),
    },
    "tls": {
        "mode": f("ISTIO_MUTUAL", enum=["DISABLE", "SIMPLE", "MUTUAL", "ISTIO_MUTUAL"]),
        "insecureSkipVerify": f(True, nullable=True),
    },
}

CASES = [
    define(
        "mesh",
        "VirtualService",
        {
            "hosts": ["reviews"],
            "gateways": ["mesh"],
            "exportTo": ["*"],
            "http": [
                {
                    "name": "a",
                    "match": [_MATCH],
                    "route": [{"destination!": _DESTINATION, "weight": f(100, format="int32")}],
                    "timeout": f(
                        "5s",
                        rules=[
                            ("duration(self) >= duration('1ms')", "must be a valid duration greater than 1ms")
                        ],
                    ),
                    "retries": {"attempts": f(3, format="int32"), "retryOn": "5xx"},
                    "fault": {
                        "delay": f(
                            {"fixedDelay": "1s", "percentage": {"value": f(0.5, format="double")}},
                            oneOf=[{"required": ["fixedDelay"]}, {"required": ["exponentialDelay"]}],
                        ),
                        "abort": {"httpStatus": f(500, format="int32")},
                    },
                    "corsPolicy": {
                        "allowOrigins": [{"exact": "a"}],
                        "allowCredentials": f(True, nullable=True),
                        "maxAge": "1d",
                    },
                    "headers": {"request": {"add": mapping({"a": "b"})}},
                    "mirror?": _DESTINATION,
                }
            ],
            "tcp": [{"match": [{"port": f(1, minimum=0)}], "route": [{"destination!": _DESTINATION}]}],
        },
        status=_MESH_STATUS,
        columns=("Gateways string .spec.gateways", "Hosts string .spec.hosts", AGE),
        names={"shortNames": ["stylevs"], "categories": ["style-mesh"]},
        other_versions=({"name": "v1beta1"}, {"name": "v1alpha3"}),
    ),
    define(
        "mesh",
        "DestinationRule",
        {
            "host!": "reviews",
            "trafficPolicy": _TRAFFIC,
            "subsets": [{"name!": "v1", "labels": labels(), "trafficPolicy": _TRAFFIC}],
            "exportTo": ["."],
            "workloadSelector": {
                "matchLabels": mapping(
                    {
                        "a": f(
                            "b",
                            maxLength=63,
                            rules=[("!self.contains('*')", "wildcard is not supported in selector")],
                        )
                    },
                    maxProperties=4096,
                )
            },
        },
        status=_MESH_STATUS,
        columns=("Host string .spec.host", AGE),
        names={"shortNames": ["styledr"], "categories": ["style-mesh"]},
    ),
    define(
        "mesh",
        "ServiceEntry",
        f(
            {
                "hosts!": f(
                    [f("x.example.com", maxLength=256)],
                    minItems=1,
                    maxItems=256,
                    rules=[("self.all(host, host != '*')", "hostname cannot be wildcard")],
                ),
                "addresses": f([f("192.0.2.1", maxLength=64)], maxItems=256),
                "ports": f(
                    [
                        f(
                            {
                                "number!": f(
                                    443,
                                    maximum=4294967295,
                                    minimum=0,
                                    rules=[("0 < self && self <= 65535", "port must be between 1-65535")],
                                ),
                                "name!": f("https", maxLength=256),
                                "protocol": f("TLS", maxLength=256),
                                "targetPort": f(
                                    443,
                                    minimum=0,
                                    rules=[("0 < self && self <= 65535", "port must be between 1-65535")],
                                ),
                            }
                        )
                    ],
                    keys=["name"],
                    maxItems=256,
                    rules=[
                        (
                            "self.all(l1, self.exists_one(l2, l1.number == l2.number))",
                            "port number cannot be duplicated",
                        )
                    ],
                ),
                "location": f("MESH_EXTERNAL", enum=["MESH_EXTERNAL", "MESH_INTERNAL"]),
                "resolution": f("DNS", enum=["NONE", "STATIC", "DNS", "DNS_ROUND_ROBIN"]),
                "endpoints": f(
                    [
                        f(
                            {
                                "address": f(
                                    "192.0.2.2",
                                    maxLength=256,
                                    rules=[
                                        (
                                            "self.startsWith('unix://') ? (self.substring(7, 8) == '/' || self.substring(7, 8) == '@') : true",
                                            "UDS must be an absolute path or abstract socket",
                                        )
                                    ],
                                ),
                                "ports": mapping(
                                    {
                                        "https": f(
                                            443,
                                            minimum=0,
                                            rules=[
                                                ("0 < self && self <= 65535", "port must be between 1-65535")
                                            ],
                                        )
                                    },
                                    maxProperties=128,
                                ),
                                "labels": labels(),
                                "weight": f(1, minimum=0),
                            }
                        )
                    ],
                    maxItems=4096,
                ),
                "workloadSelector?": {"labels": mapping({"a": f("b", maxLength=63)}, maxProperties=256)},
            },
            rules=[
                (
                    "(has(self.workloadSelector) ? 1 : 0) + (has(self.endpoints) ? 1 : 0) <= 1",
                    "only one of WorkloadSelector or Endpoints can be set",
                ),
                (
                    "!has(self.addresses) || !has(self.resolution) || self.resolution != 'DNS' || self.addresses.all(a, !a.contains('/'))",
                    "CIDR addresses are allowed only for NONE/STATIC resolution types",
                ),
            ],
        ),
        status=status(addresses=[{"host": "a", "value": "b"}]),
        plural="serviceentries",
        columns=(
            "Hosts string .spec.hosts",
            "Location string .spec.location",
            "Resolution string .spec.resolution",
            AGE,
        ),
    ),
    define(
        "mesh",
        "Sidecar",
        {
            "workloadSelector": {"labels": labels()},
            "egress": [
                {
                    "hosts!": ["./*"],
                    "port": {"number": f(9080, minimum=0), "name": "http"},
                    "captureMode": f("DEFAULT", enum=["DEFAULT", "IPTABLES", "NONE"]),
                }
            ],
            "ingress": [
                {
                    "port!": {"number": f(9080, minimum=0)},
                    "defaultEndpoint": "unix:///x",
                    "tls": _TRAFFIC["tls"],
                }
            ],
            "outboundTrafficPolicy": {"mode": f("ALLOW_ANY", enum=["REGISTRY_ONLY", "ALLOW_ANY"])},
        },
        status=_MESH_STATUS,
    ),
    define(
        "mesh",
        "AuthorizationPolicy",
        f(
            {
                "action": f("ALLOW", enum=["ALLOW", "DENY", "AUDIT", "CUSTOM"]),
                "rules": f(
                    [
                        {
                            "from": f(
                                [
                                    {
                                        "source": f(
                                            {
                                                "principals": ["a"],
                                                "namespaces?": ["b"],
                                                "ipBlocks": [f("10.0.0.0/8")],
                                                "serviceAccounts?": f([f("a/b", maxLength=320)], maxItems=16),
                                            }
                                        )
                                    }
                                ],
                                maxItems=512,
                            ),
                            "to": [{"operation": {"methods": ["GET"], "paths": ["/x*"], "ports": ["80"]}}],
                            "when": [{"key!": "request.auth.claims[iss]", "values": ["x"]}],
                        }
                    ],
                    maxItems=512,
                ),
                "selector": {
                    "matchLabels": mapping(
                        {"a": f("b", maxLength=63)},
                        maxProperties=4096,
                        rules=[
                            ("self.all(key, !key.contains('*'))", "wildcard not allowed in label key match")
                        ],
                    )
                },
                "targetRefs?": f([object_ref("Gateway")], maxItems=16),
                "provider?": {"name": "x"},
            },
            oneOf=[{"not": {"anyOf": [{"required": ["provider"]}]}}, {"required": ["provider"]}],
            rules=[
                (
                    "(has(self.selector) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1",
                    "only one of targetRefs or selector can be set",
                )
            ],
        ),
        status=_MESH_STATUS,
        plural="authorizationpolicies",
        columns=("Action string .spec.action", AGE),
    ),
    define(
        "mesh",
        "EnvoyFilter",
        {
            "configPatches": [
                {
                    "applyTo": f("HTTP_FILTER", enum=["INVALID", "LISTENER", "HTTP_FILTER", "CLUSTER"]),
                    "match": f(
                        {
                            "context": f("ANY", enum=["ANY", "GATEWAY"]),
                            "listener": {
                                "portNumber": f(80, minimum=0),
                                "filterChain": {"filter": {"name": "x", "subFilter": {"name": "y"}}},
                            },
                            "cluster?": {"name": "c"},
                        },
                        oneOf=[
                            {"not": {"anyOf": [{"required": ["listener"]}, {"required": ["cluster"]}]}},
                            {"required": ["listener"]},
                            {"required": ["cluster"]},
                        ],
                    ),
                    "patch": {
                        "operation": f("MERGE", enum=["MERGE", "ADD", "REMOVE"]),
                        "value": anything({"name": "x", "typed_config": {"@type": "y", "n": [1.5]}}),
                    },
                }
            ],
            "priority": f(0, format="int32"),
            "workloadSelector": {"labels": labels()},
        },
        status=_MESH_STATUS,
        version="v1alpha3",
    ),
    define(
        "mesh",
        "PeerAuthentication",
        f(
            {
                "mtls": {"mode": f("STRICT", enum=["UNSET", "DISABLE", "PERMISSIVE", "STRICT"])},
                "portLevelMtls": mapping(
                    {"8080": {"mode": f("DISABLE", enum=["UNSET", "DISABLE", "STRICT"])}},
                    minProperties=1,
                    rules=[
                        ("self.all(key, 0 < int(key) && int(key) <= 65535)", "port must be between 1-65535")
                    ],
                    maxProperties=64,
                ),
                "selector": {"matchLabels": labels()},
            },
            rules=[
                (
                    "has(self.portLevelMtls) ? (has(self.selector) && has(self.selector.matchLabels) && self.selector.matchLabels.size() > 0) : true",
                    "portLevelMtls requires selector",
                )
            ],
        ),
        status=_MESH_STATUS,
        columns=("Mode string .spec.mtls.mode", AGE),
    ),
]
