"""Operators of tests that are started again, share a registry, or have ended by themselves."""

import sys
import threading

import kopf
import pytest
from kopf.testing import Cluster, Operator, UnknownKindError

from tests.support.inspected import WIDGETS

pytestmark = pytest.mark.kopf_embedded_only
CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}"
MARKED = {"metadata": {"labels": {"seen": "yes"}}}


@pytest.fixture
def registry():
    registry = kopf.OperatorRegistry()

    @kopf.on.create("configmaps", registry=registry)
    def mark(patch, **_):
        patch.meta.labels["seen"] = "yes"

    return registry


def counts(registry):
    """The numbers of handlers by their families."""
    families = registry._families()
    return {name: len(item._handlers) for name, item in families.items() if item._handlers}


def test_a_registry_serves_one_cluster_after_another(registry):
    for _ in range(2):
        with Cluster() as cluster, Operator(cluster, registry=registry):
            cluster.apply(CONFIG)
            cluster.wait_for("configmaps", "one", MARKED)


def test_a_registry_serves_several_clusters_at_once(registry):
    first, second = Cluster(), Cluster()
    with first, second, Operator(first, registry=registry), Operator(second, registry=registry):
        for cluster in (first, second):
            cluster.apply(CONFIG)
            cluster.wait_for("configmaps", "one", MARKED)


@pytest.mark.parametrize("is_given", [False, True])
def test_handlers_are_declared_once_in_each_run(cluster, make, tmp_path, is_given):
    calls = []
    (tmp_path / "main.py").write_text("import kopf\n@kopf.on.event('widgets')\ndef see(**_):\n    pass\n")

    def handlers():
        kopf.cache("widgets", id="others")

        @kopf.on.create("widgets")
        def count(name, **_):
            calls.append(name)

    registry = kopf.OperatorRegistry() if is_given else None
    operator = Operator(cluster, tmp_path / "main.py", handlers, registry=registry)
    for name in ("one", "two"):
        with operator:
            make(name)
            operator.wait_until_idle()
            assert counts(operator.registry) == {"activities": 1, "watching": 1, "changing": 1}
    assert calls == ["one", "two"]
    assert not operator.registry.has_handlers


def test_running_operators_cannot_be_started(cluster):
    with Operator(cluster) as operator, pytest.raises(RuntimeError, match="started already"):
        operator.start()


def test_nothing_stays_of_declarations_that_fail(cluster, tmp_path, registry):
    (tmp_path / "main.py").write_text("import kopf\n@kopf.on.event('widgets')\ndef see(**_):\n    pass\n")
    before = list(sys.path)

    def handlers():
        @kopf.on.create("widgets")
        def fn(**_):
            pass

        raise ValueError("Oops.")

    with pytest.raises(ValueError, match="Oops"):
        Operator(cluster, tmp_path / "main.py", handlers, registry=registry).start()
    assert sys.path == before
    assert counts(registry) == {"changing": 1}


WAITS = {
    "for": lambda cluster, operator: cluster.wait_for("widgets", "never", timeout=10),
    "idle": lambda cluster, operator: operator.wait_until_idle(timeout=10),
    "all": lambda cluster, operator: cluster.wait_until_idle(timeout=10),
    "advance": lambda cluster, operator: cluster.advance("1 hour", timeout=10),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_the_error_of_an_operator_ends_the_wait(cluster, wait):
    gate = threading.Event()

    def handlers():
        @kopf.on.login()
        def log_in(**_):
            gate.wait(60)
            raise kopf.PermanentError("There are no credentials.")

    with Operator(cluster, handlers) as operator:
        gate.set()
        with pytest.raises(Exception, match=r"handlers failed|no credentials"):
            wait(cluster, operator)
        operator.stop()  # it is raised once


def test_a_cluster_that_is_started_again_has_no_kinds_of_the_last_one():
    cluster = Cluster()
    with cluster:
        cluster.apply(WIDGETS)
    with cluster:
        assert cluster.crds == []
        with pytest.raises(UnknownKindError):
            cluster.list("widgets")
