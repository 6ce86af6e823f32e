"""CRDs in the style of projects for gateways."""

from __future__ import annotations

from .blocks import AGE, NAME, conditions, define, label_selector, object_ref
from .schemas import f, mapping

GATEWAY = "gateway.style.k8s.io"
APPROVED = {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1111"}
HOST = r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
PATH_RULES = [
    (
        "(self.type in ['Exact','PathPrefix']) ? self.value.startsWith('/') : true",
        "value must be an absolute path and start with '/' when type one of ['Exact', 'PathPrefix']",
    ),
    (
        "(self.type in ['Exact','PathPrefix']) ? !self.value.contains('//') : true",
        "must not contain '//' when type one of ['Exact', 'PathPrefix']",
    ),
    (
        "self.type in ['Exact','PathPrefix'] || self.type == 'RegularExpression'",
        "type must be one of ['Exact', 'PathPrefix', 'RegularExpression']",
    ),
    (
        '(self.type in [\'Exact\',\'PathPrefix\']) ? self.value.matches(r"""^(?:[-A-Za-z0-9/._~!$&\'()*+,;=:@]|[%][0-9a-fA-F]{2})+$""") : true',
        "must only contain valid characters",
    ),
]
_HEADER = f(
    [
        {
            "name!": f("x-env", maxLength=256, minLength=1, pattern=r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$"),
            "value!": f("prod", maxLength=4096, minLength=1),
        }
    ],
    keys=["name"],
    maxItems=16,
)
_PARENT = {
    "group": f(GATEWAY, default=GATEWAY, maxLength=253),
    "kind": f("Gateway", default="Gateway", maxLength=63, minLength=1),
    "name!": f("edge", maxLength=253, minLength=1),
    "namespace": f("infra", maxLength=63, minLength=1, pattern=NAME),
    "sectionName": f("https", maxLength=253, minLength=1),
    "port": f(443, format="int32", minimum=1, maximum=65535),
}
_PARENTS = f(
    [_PARENT],
    maxItems=32,
    list_type="atomic",
    rules=[
        (
            "self.all(p1, self.all(p2, p1.name != p2.name || p1 == p2 || (has(p1.port) && has(p2.port))))",
            "parents must differ in their port",
        )
    ],
)
_BACKEND = f(
    {
        **object_ref("Service"),
        "port": f(80, format="int32", minimum=1, maximum=65535),
        "weight": f(1, default=1, format="int32", minimum=0, maximum=1000000),
    },
    rules=[
        (
            "(size(self.group) == 0 && self.kind == 'Service') ? has(self.port) : true",
            "Must have port for Service reference",
        )
    ],
)
_FILTER = f(
    {
        "type!": f(
            "RequestHeaderModifier",
            enum=["RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "ExtensionRef"],
        ),
        "requestHeaderModifier": {
            "add": _HEADER,
            "set": _HEADER,
            "remove": f(["x-a"], list_type="set", maxItems=16),
        },
        "requestRedirect?": {
            "statusCode": f(302, default=302, enum=[301, 302]),
            "scheme": f("https", enum=["http", "https"]),
            "port": f(443, format="int32", minimum=1, maximum=65535),
        },
        "extensionRef?": object_ref("Plugin"),
    },
    rules=[
        (
            "!(has(self.requestHeaderModifier) && self.type != 'RequestHeaderModifier')",
            "filter.requestHeaderModifier must be nil if the filter.type is not RequestHeaderModifier",
        ),
        (
            "!(!has(self.requestHeaderModifier) && self.type == 'RequestHeaderModifier')",
            "filter.requestHeaderModifier must be specified for RequestHeaderModifier filter.type",
        ),
        (
            "!(!has(self.requestRedirect) && self.type == 'RequestRedirect')",
            "filter.requestRedirect must be specified",
        ),
    ],
)
_FILTERS = f(
    [_FILTER],
    maxItems=16,
    list_type="atomic",
    rules=[
        (
            "self.filter(f, f.type == 'RequestHeaderModifier').size() <= 1",
            "RequestHeaderModifier filter cannot be repeated",
        ),
        (
            "!(self.exists(f, f.type == 'RequestRedirect') && self.exists(f, f.type == 'ExtensionRef'))",
            "May specify either redirect or extension",
        ),
    ],
)
_ROUTE_RULE = {
    "name": f("main", maxLength=253, minLength=1),
    "matches": f(
        [
            {
                "path": f(
                    {
                        "type": f(
                            "PathPrefix",
                            default="PathPrefix",
                            enum=["Exact", "PathPrefix", "RegularExpression"],
                        ),
                        "value": f("/", default="/", maxLength=1024),
                    },
                    default={"type": "PathPrefix", "value": "/"},
                    rules=PATH_RULES,
                ),
                "headers": _HEADER,
                "method": f("GET", enum=["GET", "POST", "PUT"]),
            }
        ],
        default=[{"path": {"type": "PathPrefix", "value": "/"}}],
        maxItems=8,
        list_type="atomic",
    ),
    "filters": _FILTERS,
    "backendRefs": f([_BACKEND], maxItems=16, list_type="atomic"),
    "timeouts": f(
        {
            "request": f("10s", pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"),
            "backendRequest": f("5s", pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"),
        },
        rules=[
            (
                "!(has(self.request) && has(self.backendRequest) && duration(self.request) != duration('0s') && duration(self.backendRequest) > duration(self.request))",
                "backendRequest timeout cannot be longer than request timeout",
            )
        ],
    ),
}
_ROUTE_STATUS = {
    "parents!": f(
        [
            {
                "controllerName!": f(
                    "example.com/c",
                    maxLength=253,
                    minLength=1,
                    pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$",
                ),
                "parentRef!": _PARENT,
                "conditions": f(conditions().sample, keys=["type"], maxItems=8, minItems=1),
            }
        ],
        maxItems=32,
        list_type="atomic",
    )
}
_LISTENER = f(
    {
        "name!": f("http", maxLength=253, minLength=1, pattern=HOST),
        "hostname": f("*.example.com", maxLength=253, minLength=1, pattern=HOST),
        "port!": f(80, format="int32", minimum=1, maximum=65535),
        "protocol!": f(
            "HTTP",
            maxLength=255,
            minLength=1,
            pattern=r"^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9]+$",
        ),
        "allowedRoutes": f(
            {
                "namespaces": f(
                    {
                        "from": f("Same", default="Same", enum=["All", "Selector", "Same"]),
                        "selector?": label_selector(),
                    },
                    default={"from": "Same"},
                ),
                "kinds": f(
                    [{"group": f(GATEWAY, default=GATEWAY), "kind!": "HTTPRoute"}],
                    maxItems=8,
                    list_type="atomic",
                ),
            },
            default={"namespaces": {"from": "Same"}},
        ),
        "tls?": f(
            {
                "mode": f("Terminate", default="Terminate", enum=["Terminate", "Passthrough"]),
                "certificateRefs": f([object_ref("Secret")], maxItems=64, list_type="atomic"),
                "options": mapping({"a": "b"}, maxProperties=16),
            },
            rules=[
                (
                    "self.mode == 'Terminate' ? size(self.certificateRefs) > 0 || size(self.options) > 0 : true",
                    "certificateRefs or options must be specified when mode is Terminate",
                )
            ],
        ),
    }
)

CASES = [
    define(
        GATEWAY,
        "Gateway",
        {
            "gatewayClassName!": f("edge", maxLength=253, minLength=1),
            "listeners!": f(
                [_LISTENER],
                keys=["name"],
                minItems=1,
                maxItems=64,
                rules=[
                    (
                        "self.all(l, l.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(l.tls) : true)",
                        "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']",
                    ),
                    (
                        "self.all(l, (l.protocol == 'HTTPS' && has(l.tls)) ? (l.tls.mode == '' || l.tls.mode == 'Terminate') : true)",
                        "tls mode must be Terminate for protocol HTTPS",
                    ),
                    (
                        "self.all(l1, self.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && (has(l1.hostname) && has(l2.hostname) ? l1.hostname == l2.hostname : !has(l1.hostname) && !has(l2.hostname))))",
                        "Combination of port, protocol and hostname must be unique for each listener",
                    ),
                ],
            ),
            "addresses": f(
                [
                    f(
                        {
                            "type": f("IPAddress", default="IPAddress", maxLength=253),
                            "value": f("192.0.2.1", maxLength=253),
                        },
                        oneOf=[
                            {
                                "properties": {
                                    "type": {"enum": ["IPAddress"]},
                                    "value": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
                                }
                            },
                            {"properties": {"type": {"not": {"enum": ["IPAddress"]}}}},
                        ],
                        rules=[
                            (
                                "self.type == 'Hostname' ? (!has(self.value) || self.value.matches('^[a-z.]+$')): true",
                                "Hostname value must be a name",
                            )
                        ],
                    )
                ],
                maxItems=16,
                list_type="atomic",
            ),
            "infrastructure": {"labels": mapping({"a": f("b", maxLength=63)}, maxProperties=8)},
        },
        status=f(
            {
                "conditions": f(
                    conditions().sample,
                    keys=["type"],
                    maxItems=8,
                    default=[
                        {
                            "lastTransitionTime": "1970-01-01T00:00:00Z",
                            "message": "Waiting for controller",
                            "reason": "Pending",
                            "status": "Unknown",
                            "type": "Accepted",
                        }
                    ],
                ),
                "addresses": [{"value!": f("a", minLength=1, maxLength=253)}],
                "listeners": f(
                    [
                        {
                            "name!": "http",
                            "attachedRoutes!": f(0, format="int32"),
                            "conditions!": conditions(),
                            "supportedKinds!": f([{"kind!": "HTTPRoute"}], maxItems=8),
                        }
                    ],
                    keys=["name"],
                    maxItems=64,
                ),
            },
            default={
                "conditions": [
                    {
                        "lastTransitionTime": "1970-01-01T00:00:00Z",
                        "message": "Waiting for controller",
                        "reason": "Pending",
                        "status": "Unknown",
                        "type": "Accepted",
                    }
                ]
            },
        ),
        columns=(
            "Class string .spec.gatewayClassName",
            "Address string .status.addresses[*].value",
            'Programmed string .status.conditions[?(@.type=="Programmed")].status',
            AGE,
        ),
        annotations=APPROVED,
        names={"shortNames": ["stylegtw"], "categories": ["style-gateway-api"]},
        other_versions=({"name": "v1beta1"},),
    ),
    define(
        GATEWAY,
        "GatewayClass",
        f(
            {
                "controllerName!": f(
                    "example.com/edge",
                    maxLength=253,
                    minLength=1,
                    rules=[("self == oldSelf", "Value is immutable")],
                ),
                "description": f("d", maxLength=64),
                "parametersRef": object_ref("Config", namespace=f("a", maxLength=63)),
            }
        ),
        status=f(
            {
                "conditions": f(
                    conditions().sample,
                    keys=["type"],
                    maxItems=8,
                    default=[
                        {
                            "lastTransitionTime": "1970-01-01T00:00:00Z",
                            "message": "Waiting",
                            "reason": "Waiting",
                            "status": "Unknown",
                            "type": "Accepted",
                        }
                    ],
                ),
                "supportedFeatures": f([{"name!": "a"}], keys=["name"], maxItems=64),
            },
            default={
                "conditions": [
                    {
                        "lastTransitionTime": "1970-01-01T00:00:00Z",
                        "message": "Waiting",
                        "reason": "Waiting",
                        "status": "Unknown",
                        "type": "Accepted",
                    }
                ]
            },
        ),
        scope="Cluster",
        columns=(
            "Controller string .spec.controllerName",
            'Accepted string .status.conditions[?(@.type=="Accepted")].status',
            AGE,
            "Description string .spec.description 1",
        ),
        annotations=APPROVED,
        plural="gatewayclasses",
    ),
    define(
        GATEWAY,
        "HTTPRoute",
        {
            "parentRefs": _PARENTS,
            "hostnames": f(
                [f("a.example.com", maxLength=253, minLength=1, pattern=HOST)],
                maxItems=16,
                list_type="atomic",
            ),
            "rules": f(
                [_ROUTE_RULE],
                maxItems=16,
                default=[{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}],
                list_type="atomic",
                rules=[
                    (
                        "self.all(r, !has(r.name)) || self.all(l1, self.exists_one(l2, has(l1.name) && has(l2.name) && l1.name == l2.name))",
                        "Rule name must be unique within the route",
                    )
                ],
            ),
        },
        status=_ROUTE_STATUS,
        columns=("Hostnames string .spec.hostnames", AGE),
        annotations=APPROVED,
        samples=(
            {"spec": {}},
            {"spec": {"rules": [{"filters": [{"type": "RequestRedirect"}]}]}},
            {"spec": {"rules": [{"matches": [{"path": {"value": "x"}}]}]}},
        ),
    ),
    define(
        GATEWAY,
        "GRPCRoute",
        {
            "parentRefs": f([_PARENT], maxItems=32),
            "rules": f(
                [
                    {
                        "matches": f(
                            [
                                {
                                    "method": f(
                                        {
                                            "type": f(
                                                "Exact", default="Exact", enum=["Exact", "RegularExpression"]
                                            ),
                                            "service": f("a.B", maxLength=1024),
                                            "method": f("Get", maxLength=1024),
                                        },
                                        rules=[
                                            (
                                                "has(self.type) ? has(self.service) || has(self.method) : true",
                                                "One or both of 'service' or 'method' must be specified",
                                            ),
                                            (
                                                '(!has(self.type) || self.type == \'Exact\') && has(self.service) ? self.service.matches(r"""^(?i)\\.?[a-z_][a-z_0-9]*(\\.[a-z_][a-z_0-9]*)*$"""): true',
                                                "service must only contain valid characters",
                                            ),
                                        ],
                                    ),
                                    "headers": _HEADER,
                                }
                            ],
                            maxItems=8,
                        ),
                        "backendRefs": f([_BACKEND], maxItems=16),
                    }
                ],
                maxItems=16,
            ),
        },
        status=_ROUTE_STATUS,
        annotations={"api-approved.kubernetes.io": "unapproved, experimental-only"},
        columns=("Hostnames string .spec.hostnames", AGE),
    ),
    define(
        GATEWAY,
        "ReferenceGrant",
        {
            "from!": f(
                [
                    {
                        "group!": f("a.example.com", maxLength=253),
                        "kind!": f("A", maxLength=63, minLength=1),
                        "namespace!": f("b", maxLength=63, minLength=1),
                    }
                ],
                minItems=1,
                maxItems=16,
            ),
            "to!": f(
                [
                    {
                        "group!": f("", maxLength=253),
                        "kind!": f("Secret", maxLength=63, minLength=1),
                        "name": f("x", maxLength=253, minLength=1),
                    }
                ],
                minItems=1,
                maxItems=16,
            ),
        },
        version="v1beta1",
        annotations=APPROVED,
        columns=(AGE,),
    ),
    define(
        GATEWAY,
        "BackendTLSPolicy",
        {
            "targetRefs!": f(
                [{**object_ref("Service"), "sectionName": f("a", maxLength=253)}],
                minItems=1,
                maxItems=16,
                rules=[
                    (
                        "self.all(p1, self.all(p2, p1.name == p2.name && p1.kind == p2.kind ? ((!has(p1.sectionName) || p1.sectionName == '') == (!has(p2.sectionName) || p2.sectionName == '')) : true))",
                        "sectionName must be specified when targetRefs includes 2 or more references to the same target",
                    )
                ],
            ),
            "validation!": f(
                {
                    "hostname!": f("a.example.com", maxLength=253, minLength=1, pattern=HOST),
                    "caCertificateRefs": f([object_ref("ConfigMap")], maxItems=8),
                    "wellKnownCACertificates?": f("System", enum=["System"]),
                },
                rules=[
                    (
                        '!(has(self.caCertificateRefs) && size(self.caCertificateRefs) > 0 && has(self.wellKnownCACertificates) && self.wellKnownCACertificates != "")',
                        "must not contain both",
                    ),
                    (
                        '(has(self.caCertificateRefs) && size(self.caCertificateRefs) > 0 || has(self.wellKnownCACertificates) && self.wellKnownCACertificates != "")',
                        "must specify either",
                    ),
                ],
            ),
        },
        status={
            "ancestors!": f(
                [
                    {
                        "controllerName!": f("a.example.com/x", maxLength=253),
                        "ancestorRef!": _PARENT,
                        "conditions": conditions(),
                    }
                ],
                maxItems=16,
            )
        },
        plural="backendtlspolicies",
        annotations=APPROVED,
        columns=(AGE,),
    ),
]
