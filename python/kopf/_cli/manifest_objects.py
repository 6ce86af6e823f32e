"""The objects of `kopf manifests`: the Deployment of an operator, and what belongs to it."""

from __future__ import annotations

import importlib.resources
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Monitor = Literal["none", "service", "servicemonitor", "podmonitor"]
Document = dict[str, Any]

STATUS_PORT = 8080
WEBHOOK_PORT = 9443
"""The port of the webhook server, if the settings do not have one."""
USER = 65532
"""The id of the user of the container, as in the images without a shell."""
MONITORING = "monitoring.coreos.com/v1"
POD_FIELDS = (
    ("POD_NAME", "metadata.name"),
    ("POD_NAMESPACE", "metadata.namespace"),
    ("POD_UID", "metadata.uid"),
    ("POD_ID", "metadata.name"),
)
JOB_OF_RULES = 'job="operator"'
"""The selector in the alert rules of this package."""


@dataclass(frozen=True)
class Workload:
    """The operator in its cluster."""

    name: str
    home: str
    """The namespace of the operator."""
    image: str
    args: Sequence[str]
    """The options of `kopf run`, apart from the address of the probes."""
    replicas: int = 1
    has_standbys: bool = False
    """Whether the replicas elect a leader."""
    webhook_port: int | None = None
    """The port of the webhook server; None if there are no admission handlers."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the pods. A new dict each time: YAML would have references."""
        return {"app": self.name}

    def metadata(self, suffix: str = "") -> Document:
        """The metadata of an object in the namespace of the operator."""
        return {"name": f"{self.name}{suffix}", "namespace": self.home}


def deployment(workload: Workload) -> Iterator[Document]:
    """The Deployment; and, for several replicas, a PodDisruptionBudget.

    Replicas of a leader election are replaced one after the other, since the next one stands by until the
    previous one has released the lease. Otherwise, the old pod ends before the new one starts.
    """
    name, labels = workload.name, workload.labels
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": workload.labels},
    }
    template = {
        "serviceAccountName": name,
        "terminationGracePeriodSeconds": 60,
        "securityContext": pod_security(),
        **({"topologySpreadConstraints": [spread]} if workload.has_standbys else {}),
        "containers": [_container(workload)],
    }
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": workload.metadata(),
        "spec": {
            "replicas": workload.replicas,
            "strategy": rolling if workload.has_standbys else {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": workload.labels}, "spec": template},
        },
    }
    if workload.replicas > 1:
        yield {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": workload.metadata(),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": workload.labels}},
        }


def _container(workload: Workload) -> Document:
    ports = [{"name": "status", "containerPort": STATUS_PORT}]
    if workload.webhook_port is not None:
        ports.append({"name": "webhook", "containerPort": workload.webhook_port})
    return {
        "name": "operator",
        "image": workload.image,
        "env": [_field_of_pod(*pair) for pair in POD_FIELDS],
        "args": [*workload.args, f"--liveness=http://0.0.0.0:{STATUS_PORT}/healthz"],
        "ports": ports,
        "startupProbe": _probe("/startupz", period=5, failures=60),
        "livenessProbe": _probe("/livez", period=20, failures=3),
        "readinessProbe": _probe("/readyz", period=10, failures=2),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": container_security(),
    }


def pod_security() -> Document:
    """The security context of the pod, as the standard "restricted" demands."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Document:
    """The security context of the container. Kopf writes no files."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _field_of_pod(variable: str, path: str) -> Document:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(path: str, *, period: int, failures: int) -> Document:
    return {
        "httpGet": {"path": path, "port": "status"},
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def services(workload: Workload, monitor: Monitor) -> Iterator[Document]:
    """The Services, and what makes the Prometheus operator scrape the pods."""
    if monitor in ("service", "servicemonitor"):
        port = {"name": "status", "port": STATUS_PORT, "targetPort": "status"}
        yield _service(workload, "", port)
    if workload.webhook_port is not None:
        yield _service(workload, "-webhook", {"name": "webhook", "port": 443, "targetPort": "webhook"})
    endpoint = [{"port": "status", "path": "/metrics"}]
    if monitor == "servicemonitor":
        spec: Document = {"selector": {"matchLabels": workload.labels}, "endpoints": endpoint}
        yield {
            "apiVersion": MONITORING,
            "kind": "ServiceMonitor",
            "metadata": workload.metadata(),
            "spec": spec,
        }
    if monitor == "podmonitor":
        spec = {"selector": {"matchLabels": workload.labels}, "podMetricsEndpoints": endpoint}
        yield {"apiVersion": MONITORING, "kind": "PodMonitor", "metadata": workload.metadata(), "spec": spec}


def _service(workload: Workload, suffix: str, port: Document) -> Document:
    # The Service of webhooks has no labels: a ServiceMonitor must not select it, too.
    labels = {} if suffix else {"labels": workload.labels}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**workload.metadata(suffix), **labels},
        "spec": {"selector": workload.labels, "ports": [port]},
    }


def network_policy(workload: Workload, servers: Collection[str], monitoring: str) -> Document:
    """The NetworkPolicy. `servers` are the CIDRs of the API server, `monitoring` is where metrics are read.

    The API server cannot be selected by labels: it is not in a pod network. Probes of the kubelet are allowed
    in any case.
    """
    scraping = {
        "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": monitoring}}}],
        "ports": [{"port": "status"}],
    }
    ingress: list[Document] = [scraping]
    if workload.webhook_port is not None:
        ingress.append({"ports": [{"port": "webhook"}]})
    names = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    egress: list[Document] = [{"ports": names}]
    if servers:
        blocks = [{"ipBlock": {"cidr": cidr}} for cidr in servers]
        egress.append({"to": blocks, "ports": [{"port": port} for port in (443, 6443)]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": workload.metadata(),
        "spec": {
            "podSelector": {"matchLabels": workload.labels},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def alert_rules(name: str, home: str, monitor: Monitor) -> Document:
    """The PrometheusRule with the alerts of Kopf, for the job of this operator."""
    import yaml

    job = f"{home}/{name}" if monitor == "podmonitor" else name
    text = _read("rules.yaml").replace(JOB_OF_RULES, f'job="{job}"')
    spec = yaml.safe_load(text)
    metadata = {"name": name, "namespace": home}
    return {"apiVersion": MONITORING, "kind": "PrometheusRule", "metadata": metadata, "spec": spec}


def dashboard(name: str, home: str) -> Document:
    """The ConfigMap with the dashboard, as the sidecar of Grafana finds it."""
    metadata = {"name": f"{name}-dashboard", "namespace": home, "labels": {"grafana_dashboard": "1"}}
    data = {"kopf.json": _read("dashboard.json")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def uninstall_job(workload: Workload, sources: Sequence[str]) -> Document:
    """The Job that runs `kopf uninstall` with the account `NAME-uninstall`. `sources` are its arguments."""
    container = {
        "name": "uninstall",
        "image": workload.image,
        "command": ["kopf", "uninstall", "--yes", *sources],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": container_security(),
    }
    template = {
        "serviceAccountName": f"{workload.name}-uninstall",
        "restartPolicy": "Never",
        "securityContext": pod_security(),
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": workload.metadata("-uninstall"),
        "spec": {"backoffLimit": 0, "template": {"spec": template}},
    }


def _read(name: str) -> str:
    return importlib.resources.files("kopf._cli").joinpath("monitoring", name).read_text(encoding="utf-8")
