"""CRDs in the style of projects for metrics, logs and dashboards."""

from __future__ import annotations

from .blocks import (
    AGE,
    TIME,
    claim_template,
    container,
    define,
    environment,
    label_selector,
    labels,
    pod_template,
    resources,
    secret_key,
    status,
    toleration,
)
from .schemas import GO_DURATION, anything, duration, f, int_or_string, mapping, quantity, untyped

GROUP = "monitoring"
PROM_DURATION = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
_RELABEL = {
    "action": f(
        "replace",
        default="replace",
        enum=["replace", "Replace", "keep", "Keep", "drop", "Drop", "hashmod", "labelmap"],
    ),
    "sourceLabels": f([f("__name__", pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")]),
    "regex": "(.*)",
    "targetLabel": "job",
    "modulus": f(10, format="int64"),
    "separator": ";",
}
_TLS = {
    "ca": {
        "configMap": f({"key!": "ca", "name": f("cm", default=""), "optional": True}, map_type="atomic"),
        "secret?": secret_key(),
    },
    "insecureSkipVerify": True,
    "serverName": "x.example.com",
    "minVersion": f("TLS12", enum=["TLS10", "TLS11", "TLS12", "TLS13"]),
}
_ENDPOINT = f(
    {
        "port": "http",
        "targetPort?": int_or_string(9090),
        "path": "/metrics",
        "scheme": f("http", enum=["http", "https"]),
        "interval": f("30s", pattern=PROM_DURATION),
        "scrapeTimeout": f("10s", pattern=PROM_DURATION),
        "honorLabels": True,
        "params": f({"module": ["http"]}, is_map=True),
        "basicAuth?": {"username": secret_key("u"), "password": secret_key("p")},
        "tlsConfig": _TLS,
        "relabelings": [_RELABEL],
        "metricRelabelings": [_RELABEL],
        "filterRunning": f(True),
    }
)
_MONITOR = {
    "endpoints!": [_ENDPOINT],
    "selector!": label_selector(),
    "namespaceSelector": {"any": True, "matchNames": ["a"]},
    "jobLabel": "app",
    "sampleLimit": f(1000, format="int64"),
    "scrapeProtocols": f(
        [f("PrometheusProto", enum=["PrometheusProto", "OpenMetricsText1.0.0", "PrometheusText0.0.4"])],
        list_type="set",
    ),
    "targetLabels": f(["app"]),
    "bodySizeLimit": f("10MB", pattern="(^0|([0-9]*[.])?[0-9]+((K|M|G|T|E|P)i?)?B)$"),
}
_SERVER = {
    "replicas": f(2, format="int32"),
    "version": "v3.0.0",
    "image": "registry.example.com/prom:v3",
    "serviceMonitorSelector": label_selector(),
    "retention": f("24h", pattern=PROM_DURATION),
    "retentionSize": f("1GB", pattern="(^0|([0-9]*[.])?[0-9]+((K|M|G|T|E|P)i?)?B)$"),
    "resources": resources(),
    "storage": {"emptyDir?": {"sizeLimit": quantity("1Gi")}, "volumeClaimTemplate": claim_template()},
    "tolerations": [toleration()],
    "containers": [container("extra")],
    "externalLabels": mapping({"cluster": "one"}),
    "podMetadata": {"labels": labels(), "name": "x"},
    "alerting": {
        "alertmanagers!": [
            {
                "name!": f("am", minLength=1),
                "port!": int_or_string("web"),
                "apiVersion": f("v2", enum=["v1", "V1", "v2", "V2"]),
            }
        ]
    },
    "remoteWrite": [
        {
            "url!": f("https://r.example.com", minLength=1),
            "headers": mapping({"a": "b"}),
            "queueConfig": {"capacity": 5, "minBackoff": f("30ms", pattern=PROM_DURATION)},
            "sigv4": {"region": "x"},
        }
    ],
    "logLevel": f("info", enum=["", "debug", "info", "warn", "error"]),
    "securityContext": {
        "fsGroup": f(2000, format="int64"),
        "runAsNonRoot": True,
        "sysctls": f([{"name!": "a", "value!": "b"}], list_type="atomic"),
    },
    "topologySpreadConstraints": [
        {
            "maxSkew!": f(1, format="int32"),
            "topologyKey!": "zone",
            "whenUnsatisfiable!": "DoNotSchedule",
            "labelSelector": label_selector(),
        }
    ],
    "web": {"maxConnections": f(512, format="int32", minimum=0), "pageTitle": "p"},
    "arbitraryFSAccessThroughSMs": {"deny": True},
}
_STATUS = {
    "availableReplicas!": f(1, format="int32"),
    "replicas!": f(1, format="int32"),
    "paused!": False,
    "selector": "app=web",
    "conditions": f(
        [
            {
                "type!": f("Available", minLength=1),
                "status!": f("True", minLength=1),
                "lastTransitionTime!": f(TIME, format="date-time"),
                "reason": "r",
            }
        ],
        keys=["type"],
    ),
    "shardStatuses": f([{"shardID!": "0", "replicas!": f(1, format="int32")}], keys=["shardID"]),
}
_COLUMNS = (
    "Version string .spec.version",
    "Desired integer .spec.replicas",
    "Ready integer .status.availableReplicas",
    'Reconciled string .status.conditions[?(@.type=="Reconciled")].status',
    "Paused boolean .status.paused 1",
    AGE,
)
_RECEIVER = {
    "name!": f("team", minLength=1),
    "webhookConfigs": [
        {
            "url": f("https://h.example.com", pattern="^https?://.+$"),
            "maxAlerts": f(5, format="int32", minimum=0),
            "sendResolved": True,
            "httpConfig": {"followRedirects": True, "bearerTokenSecret": secret_key()},
        }
    ],
    "slackConfigs": [
        {
            "channel": f("#ops", minLength=1),
            "fields": [{"title!": f("t", minLength=1), "value!": f("v", minLength=1), "short": True}],
            "actions": [
                {
                    "type!": f("button", minLength=1),
                    "text!": f("x", minLength=1),
                    "confirm": {"text!": f("sure", minLength=1)},
                }
            ],
        }
    ],
    "emailConfigs": [
        {
            "to": f("a@example.com", format="email"),
            "tlsConfig": _TLS,
            "headers": [{"key!": f("k", minLength=1), "value!": "v"}],
        }
    ],
}

CASES = [
    define(
        GROUP,
        "ServiceScrape",
        _MONITOR,
        names={"shortNames": ["stylesmon"], "categories": ["style-monitoring"]},
    ),
    define(
        GROUP,
        "PodScrape",
        {**_MONITOR, "podTargetLabels": ["app"], "attachMetadata": {"node": True}},
        status=status(
            bindings=f(
                [
                    {
                        "group!": f("monitoring.style.example.com", enum=["monitoring.style.example.com"]),
                        "resource!": f("metricservers", enum=["metricservers", "metricagents"]),
                        "name!": f("x", minLength=1),
                        "namespace!": f("y", minLength=1),
                    }
                ]
            )
        ),
    ),
    define(
        GROUP,
        "ProbeScrape",
        {
            "prober": {
                "url!": "prober:9115",
                "path": f("/probe", default="/probe"),
                "scheme": f("http", enum=["http", "https"]),
            },
            "module": "http_2xx",
            "targets": {
                "staticConfig": {"static": ["https://example.com"], "labels": labels()},
                "ingress?": {"selector": label_selector()},
            },
            "interval": f("1m", pattern=PROM_DURATION),
            "sampleLimit": f(5, format="int64"),
        },
    ),
    define(
        GROUP,
        "AlertRule",
        {
            "groups": f(
                [
                    {
                        "name!": f("availability", minLength=1),
                        "interval": f("30s", pattern=PROM_DURATION),
                        "limit": 5,
                        "partial_response_strategy": f("warn", pattern="^(?i)(abort|warn)?$"),
                        "rules": [
                            {
                                "alert": "Down",
                                "expr!": int_or_string("up == 0"),
                                "for": f("5m", pattern=PROM_DURATION),
                                "labels": labels(),
                                "annotations": mapping({"summary": "x"}),
                                "keep_firing_for": f("1m", minLength=1, pattern=PROM_DURATION),
                            }
                        ],
                    }
                ],
                keys=["name"],
            )
        },
        samples=({"spec": {"groups": [{"name": "a", "rules": [{"record": "x", "expr": 1}]}]}}, {"spec": {}}),
        names={"shortNames": ["stylerule"], "categories": ["style-monitoring"]},
    ),
    define(
        GROUP,
        "MetricServer",
        {
            **_SERVER,
            "shards": f(1, format="int32"),
            "thanos": {
                "objectStorageConfig": secret_key(),
                "blockSize": f("2h", default="2h", pattern="^(0|(([0-9]+)h)?(([0-9]+)m)?)$"),
            },
            "query": {"maxConcurrency": f(5, format="int32", minimum=1)},
            "tsdb": {"outOfOrderTimeWindow": f("1m", pattern=PROM_DURATION)},
        },
        status=_STATUS,
        columns=_COLUMNS,
        scale=(".spec.shards", ".status.replicas", ".status.selector"),
        names={"shortNames": ["styleprom"], "categories": ["style-monitoring"]},
    ),
    define(
        GROUP,
        "MetricAgent",
        {**_SERVER, "mode": f("StatefulSet", enum=["StatefulSet", "DaemonSet"])},
        status=_STATUS,
        columns=_COLUMNS,
        version="v1alpha1",
        root={
            "x-kubernetes-validations": [
                {
                    "rule": "!(has(self.spec.mode) && self.spec.mode == 'DaemonSet' && has(self.spec.replicas))",
                    "message": "replicas cannot be set when mode is DaemonSet",
                }
            ]
        },
    ),
    define(
        GROUP,
        "AlertRouter",
        {
            **{k: v for k, v in _SERVER.items() if k not in {"alerting", "remoteWrite", "web"}},
            "retention": f(
                "120h", default="120h", pattern="^(0|(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
            ),
            "clusterGossipInterval": f("1s", pattern=PROM_DURATION),
            "configSecret": "c",
        },
        status={**_STATUS, "updatedReplicas!": f(1, format="int32")},
        columns=_COLUMNS,
        scale=(".spec.replicas", ".status.replicas", ".status.selector"),
    ),
    define(
        GROUP,
        "AlertRouting",
        {
            "route": {
                "receiver": "team",
                "groupBy": ["job"],
                "groupWait": duration("30s"),
                "repeatInterval": duration("12h"),
                "matchers": [
                    {
                        "name!": f("severity", minLength=1),
                        "value": "page",
                        "matchType": f("=", enum=["!=", "=", "=~", "!~"]),
                    }
                ],
                "routes": [untyped({"receiver": "x", "continue": True})],
            },
            "receivers": [_RECEIVER],
            "inhibitRules": [
                {"equal": ["ns"], "sourceMatch": [{"name!": f("a", minLength=1), "value": "b"}]}
            ],
            "muteTimeIntervals": [
                {
                    "name!": "nights",
                    "timeIntervals": [
                        {
                            "times": [
                                {
                                    "startTime": f(
                                        "22:00", pattern="^((([01][0-9])|(2[0-3])):[0-5][0-9])$|(^24:00$)"
                                    )
                                }
                            ],
                            "weekdays": [
                                f(
                                    "saturday:sunday",
                                    pattern="^((?i)sun|mon|tues|wednes|thurs|fri|satur)day(?:((:(sun|mon|tues|wednes|thurs|fri|satur)day)$)|$)",
                                )
                            ],
                            "months": ["may"],
                        }
                    ],
                }
            ],
        },
        version="v1alpha1",
        plural="alertroutings",
    ),
    define(
        GROUP,
        "ScrapeConfig",
        {
            "jobName": f("job", minLength=1),
            "staticConfigs": [
                {
                    "targets!": f([f("host:9100", minLength=1)], minItems=1, list_type="set"),
                    "labels": labels(),
                }
            ],
            "httpSDConfigs": [
                {
                    "url!": f("http://sd.example.com", minLength=1, pattern="^http(s)?://.+$"),
                    "refreshInterval": f("1m", pattern=PROM_DURATION),
                }
            ],
            "kubernetesSDConfigs": [
                {
                    "role!": f("Pod", enum=["Pod", "Endpoints", "Ingress", "Service", "Node"]),
                    "namespaces": {"names": f(["a"], list_type="set"), "ownNamespace": True},
                    "selectors": f(
                        [{"role!": f("Pod", enum=["Pod", "Node"]), "label": "a=b"}], keys=["role"]
                    ),
                }
            ],
            "dnsSDConfigs": f(
                [
                    {
                        "names!": f([f("a.example.com", minLength=1)], minItems=1),
                        "type": f("A", enum=["A", "AAAA", "SRV"]),
                        "port": f(80, format="int32", minimum=0, maximum=65535),
                    }
                ]
            ),
            "sampleLimit": f(1, format="int64", minimum=0),
            "enableCompression": True,
            "proxyUrl": f("http://p.example.com", pattern="^(http|https|socks5)://.+$"),
            "tlsConfig": _TLS,
        },
        version="v1alpha1",
    ),
    define(
        GROUP,
        "RulerServer",
        {
            "queryEndpoints": ["q:9090"],
            "replicas": f(1, format="int32"),
            "ruleSelector": label_selector(),
            "evaluationInterval": f("15s", default="15s", pattern=PROM_DURATION),
            "retention": f("24h", default="24h", pattern=PROM_DURATION),
            "grpcServerTlsConfig": _TLS,
            "labels": labels(),
            "hostAliases": f([{"hostnames!": ["a"], "ip!": "192.0.2.1"}], keys=["ip"]),
        },
        status=_STATUS,
        columns=_COLUMNS,
        scale=(".spec.replicas", ".status.replicas"),
    ),
    define(
        "logging",
        "LogFlow",
        {
            "filters": [
                {
                    "grep": {"exclude": [{"key!": "level", "pattern!": "debug"}]},
                    "parser?": {"parse": {"type": "json"}},
                    "record_modifier": {"records": [mapping({"a": "b"})]},
                }
            ],
            "match": [{"select": {"labels": labels(), "hosts": ["h"]}, "exclude?": {"namespaces": ["x"]}}],
            "globalOutputRefs": f(["all"], list_type="set"),
            "localOutputRefs": ["local"],
            "flowLabel": "@x",
        },
        status={"active": True, "problems": ["none"], "problemsCount": 0},
        columns=("Active boolean .status.active", "Problems integer .status.problemsCount"),
        version="v1beta1",
        names={"categories": ["style-logging"]},
        other_versions=(
            {
                "name": "v1alpha1",
                "additionalPrinterColumns": [
                    {"name": "Label", "type": "string", "jsonPath": ".spec.flowLabel"}
                ],
            },
        ),
    ),
    define(
        "logging",
        "LogOutput",
        {
            "s3": {
                "s3_bucket!": "logs",
                "s3_region": "eu-1",
                "buffer": {
                    "timekey": "10m",
                    "timekey_use_utc": True,
                    "chunk_limit_size": "8MB",
                    "tags": f("tag,time", nullable=True),
                    "retry_max_times": 5,
                },
                "aws_key_id": {"value": "x", "valueFrom": {"secretKeyRef": secret_key()}},
            },
            "file?": {"path!": "/x", "append": True},
            "elasticsearch?": {
                "host": "es",
                "port": 9200,
                "scheme": f("https", default="http"),
                "ssl_verify": f(True, nullable=True),
            },
        },
        status={"active": True, "problems": ["a"]},
        version="v1beta1",
        columns=("Active boolean .status.active", "Problems string .status.problems"),
    ),
    define(
        "dashboards",
        "Dashboard",
        f(
            {
                "instanceSelector!": f(
                    label_selector().sample,
                    map_type="atomic",
                    rules=[{"rule": "self == oldSelf", "message": "Value is immutable"}],
                ),
                "json": '{"title": "x"}',
                "url?": "https://d.example.com",
                "configMapRef?": f({"key!": "k", "name": f("n", default="")}, map_type="atomic"),
                "folder": "ops",
                "uid": f(
                    "abc",
                    maxLength=40,
                    pattern="^[a-zA-Z0-9-_]+$",
                    rules=[{"rule": "self == oldSelf", "message": "spec.uid is immutable"}],
                ),
                "resyncPeriod": f("10m0s", pattern=GO_DURATION, default="10m0s"),
                "plugins": [{"name!": "p", "version!": "1"}],
                "datasources": [{"datasourceName!": "a", "inputName!": "b"}],
                "allowCrossNamespaceImport": f(False, default=False),
                "envs": environment(),
            },
            rules=[
                {
                    "rule": "has(self.json) != has(self.url) || has(self.configMapRef)",
                    "message": "exactly one source",
                },
                {
                    "rule": "((!has(oldSelf.uid) && !has(self.uid)) || (has(oldSelf.uid) && has(self.uid)))",
                    "message": "spec.uid is immutable",
                },
                {
                    "rule": "!oldSelf.allowCrossNamespaceImport || (oldSelf.allowCrossNamespaceImport && self.allowCrossNamespaceImport)",
                    "message": "disabling allowCrossNamespaceImport requires a recreate",
                },
            ],
        ),
        status=status(hash="x", lastResync=f(TIME, format="date-time"), NoMatchingInstances=False),
        columns=(
            "No_matching_instances boolean .status.NoMatchingInstances",
            "Last_resync date/date-time .status.lastResync",
            AGE,
        ),
        version="v1beta1",
    ),
    define(
        "dashboards",
        "Datasource",
        f(
            {
                "instanceSelector!": label_selector(),
                "datasource!": {
                    "access": "proxy",
                    "basicAuth": True,
                    "isDefault": False,
                    "jsonData": anything({"timeInterval": "5s", "n": 1.5}),
                    "orgId": f(1, format="int64"),
                    "editable": f(True, nullable=True),
                    "name": "a",
                    "type": "prometheus",
                },
                "valuesFrom": f(
                    [
                        {
                            "targetPath!": "jsonData.x",
                            "valueFrom!": f(
                                {"secretKeyRef": secret_key(), "configMapKeyRef?": secret_key()},
                                rules=[
                                    {
                                        "rule": "(has(self.configMapKeyRef) && !has(self.secretKeyRef)) || (!has(self.configMapKeyRef) && has(self.secretKeyRef))",
                                        "message": "Either configMapKeyRef or secretKeyRef must be set",
                                    }
                                ],
                            ),
                        }
                    ],
                    maxItems=99,
                ),
            }
        ),
        status=status(),
        version="v1beta1",
    ),
    define(
        "dashboards",
        "DashboardServer",
        {
            "config": anything({"auth": {"disable_login_form": "false"}}),
            "deployment": {
                "metadata": {"annotations": mapping({"a": "b"})},
                "spec": {
                    "replicas": f(1, format="int32"),
                    "template": pod_template(),
                    "strategy": {
                        "rollingUpdate": {
                            "maxSurge": int_or_string("25%"),
                            "maxUnavailable": int_or_string(0),
                        },
                        "type": "RollingUpdate",
                    },
                },
            },
            "ingress": anything({"spec": {"rules": []}}),
            "version": "11",
            "preferences": {"homeDashboardUid": "x"},
        },
        status={"stage": "complete", "stageStatus": "success", "dashboards": ["a/b/c"]},
        columns=(
            "Version string .spec.version",
            "Stage string .status.stage",
            "Stage_status string .status.stageStatus",
            AGE,
        ),
        version="v1beta1",
    ),
]
