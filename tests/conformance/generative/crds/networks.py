"""CRDs in the style of projects for networks and proxies."""

from __future__ import annotations

from .blocks import AGE, define, labels, secret_key
from .schemas import f, int_or_string, mapping, untyped

CASES = [
    define(
        "net",
        "IPPool",
        f(
            {
                "cidr!": f(
                    "10.1.0.0/16",
                    rules=[
                        ("isCIDR(self)", "not a CIDR"),
                        ("cidr(self).prefixLength() <= 26", "too small"),
                        {"rule": "self == oldSelf", "message": "cidr is immutable"},
                    ],
                    maxLength=64,
                ),
                "gateway": f(
                    "10.1.0.1",
                    maxLength=64,
                    rules=[
                        ("isIP(self) && ip(self).family() == 4", "not an IPv4 address"),
                        ("ip.isCanonical(self)", "not canonical"),
                    ],
                ),
                "blockSize": f(26, default=26, minimum=20, maximum=32),
                "natOutgoing": f(True, default=False),
                "ipipMode": f("Never", enum=["Always", "CrossSubnet", "Never"]),
                "disabled": False,
                "allowedUses": f([f("Workload", enum=["Workload", "Tunnel"])], list_type="set", maxItems=2),
                "documentation": f(
                    "https://example.com/x",
                    maxLength=200,
                    rules=[("isURL(self) && url(self).getScheme() == 'https'", "must be an https URL")],
                ),
            },
            rules=[
                (
                    "!has(self.gateway) || cidr(self.cidr).containsIP(self.gateway)",
                    "the gateway is outside of the pool",
                )
            ],
        ),
        scope="Cluster",
        columns=(
            "CIDR string .spec.cidr",
            "Block integer .spec.blockSize",
            "NAT boolean .spec.natOutgoing",
            AGE,
        ),
    ),
    define(
        "net",
        "BGPPeer",
        {
            "peerIP": f("192.0.2.1", format="ipv4"),
            "peer6": f("2001:db8::1", format="ipv6"),
            "asNumber": f(64512, format="uint32", minimum=0, maximum=4294967295),
            "mac": f("00:00:5e:00:53:01", format="mac"),
            "nodeSelector": "all()",
            "password": {"secretKeyRef": secret_key()},
            "maxRestartTime": f("120s", format="duration"),
            "keepOriginalNextHop": True,
            "filters": f(["a"], list_type="set"),
            "nets": f([f("10.0.0.0/8", format="cidr")], maxItems=4),
        },
        scope="Cluster",
    ),
    define(
        "net",
        "DNSEndpoint",
        {
            "endpoints": [
                {
                    "dnsName": f("a.example.com", format="hostname"),
                    "recordTTL": f(60, format="int64"),
                    "recordType": "A",
                    "targets": ["192.0.2.1"],
                    "labels": labels(),
                    "providerSpecific": [{"name": "a", "value": "b"}],
                    "setIdentifier": "x",
                }
            ]
        },
        status={"observedGeneration": f(1, format="int64")},
        version="v1alpha1",
    ),
    define(
        "net",
        "IngressRoute",
        {
            "entryPoints": ["web"],
            "routes!": [
                {
                    "match!": "Host(`a`)",
                    "kind": f("Rule", enum=["Rule"]),
                    "priority": f(1, maximum=9223372036854774807),
                    "middlewares": [{"name!": "m"}],
                    "services": [
                        {
                            "name!": "s",
                            "port": int_or_string(80),
                            "kind": f("Service", enum=["Service", "TraefikService"]),
                            "weight": f(1, minimum=0),
                            "sticky": {
                                "cookie": {
                                    "httpOnly": True,
                                    "sameSite": f("lax", enum=["none", "lax", "strict"]),
                                }
                            },
                            "healthCheck": {"interval": int_or_string("30s")},
                        }
                    ],
                }
            ],
            "tls": {"secretName": "s", "domains": [{"main": "a", "sans": ["b"]}]},
        },
        version="v1alpha1",
    ),
    define(
        "net",
        "Middleware",
        {
            "headers": {
                "customRequestHeaders": mapping({"a": "b"}),
                "stsSeconds": f(1, format="int64", minimum=0),
            },
            "rateLimit": {
                "average": f(100, format="int64", minimum=0),
                "period": int_or_string("1s"),
                "sourceCriterion": {"ipStrategy": {"depth": f(1, minimum=0)}},
            },
            "plugin": f({"x": untyped({"a": 1})}, is_map=True),
            "retry": {
                "attempts": f(3, minimum=0),
                "initialInterval": int_or_string("100ms", pattern="^([0-9]+(ns|us|µs|ms|s|m|h)?)+$"),
            },
            "chain?": {"middlewares": [{"name!": "a"}]},
        },
        version="v1alpha1",
    ),
    define(
        "net",
        "ClusterNetworkPolicy",
        f(
            {
                "order": f(1.5),
                "selector": "all()",
                "types": f([f("Ingress", enum=["Ingress", "Egress"])], list_type="set"),
                "ingress": [
                    {
                        "action!": f("Allow", pattern="^(Allow|Deny|Log|Pass)$"),
                        "protocol": int_or_string("TCP", pattern="^.*"),
                        "source": {
                            "nets": ["10.0.0.0/8"],
                            "ports": [int_or_string("80:90", pattern="^.*")],
                            "notSelector": "x",
                        },
                        "icmp": {"type": f(8, minimum=0, maximum=254), "code?": 0},
                    }
                ],
                "priority": f(100, minimum=0, maximum=1000),
            },
            anyOf=[{"required": ["selector"]}, {"required": ["order"]}],
        ),
        scope="Cluster",
        plural="clusternetworkpolicies",
        columns=(
            "Order number/float .spec.order",
            "Types string .spec.types",
            "Priority integer .spec.priority",
        ),
    ),
]
