"""Objects for the commands that inspect objects, and a call of these commands in the process of the test."""

from collections.abc import Mapping

import click.testing
import pytest
from kopf._cli.commands import main
from kopf._runtime import default_registry
from kopf.testing import Cluster

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.behaviours.example.com}
spec:
  group: behaviours.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
PEERING = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: clusterkopfpeerings.kopf.dev}}
spec:
  group: kopf.dev
  scope: Cluster
  names: {{plural: clusterkopfpeerings, singular: clusterkopfpeering, kind: ClusterKopfPeering}}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
apiVersion: kopf.dev/v1
kind: ClusterKopfPeering
metadata: {{name: default}}
status:
  the-operator: {{priority: 7, lifetime: 60, lastseen: "{age}"}}
  a-dead-one: {{priority: 9, lifetime: 60, lastseen: "2026-01-01T00:00:00+00:00"}}
"""
FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
PREFIX = "kopf.zalando.org/"
LAST = PREFIX + "last-handled-configuration"
OTHER = "example.com/other"


def call(
    cluster: Cluster, *args: str, environment: Mapping[str, str] | None = None, charset: str = "utf-8"
) -> click.testing.Result:
    """Call a command with a separate registry; its time is that of the cluster."""
    before = default_registry.get_default_registry()
    default_registry.set_default_registry(default_registry.SmartOperatorRegistry())
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"KUBECONFIG": str(cluster.kubeconfig), **(environment or {})}.items():
                patch.setenv(name, value)
            return click.testing.CliRunner(charset).invoke(main, args)
    finally:
        default_registry.set_default_registry(before)
