"""External triggers of several operators with one registry. Section 1.12."""

import threading

import kopf
import pytest
from kopf.testing import Operator

pytestmark = pytest.mark.kopf_embedded_only


class Calls:
    """The names of the operators whose reconciler was called."""

    def __init__(self):
        self.made, self.changed = [], threading.Condition()

    def add(self, operator):
        with self.changed:
            self.made.append(operator)
            self.changed.notify_all()

    def take(self, count):
        """Wait for so many calls, and forget them."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.made) >= count, 60), self.made
            taken, self.made = sorted(self.made), []
            return taken


@pytest.fixture
def calls():
    return Calls()


@pytest.fixture
def start(cluster, calls):
    """Starts an operator of this name; all have the same registry."""
    registry = kopf.OperatorRegistry()

    @kopf.on.reconcile("widgets", id="sync", registry=registry)
    def sync(memo, **_):
        calls.add(memo.operator)

    @kopf.on.event("configmaps", labels={"trigger": kopf.PRESENT}, registry=registry)
    def trigger(namespace, labels, memo, **_):
        if labels["trigger"] == memo.operator:
            kopf.trigger(("widgets", "a", namespace))
            kopf.trigger_all("sync")

    def operator(name):
        return Operator(cluster, registry=registry, memo=kopf.Memo(operator=name))

    operator.registry = registry
    return operator


def test_all_operators_are_triggered_from_outside(cluster, make, start, calls):
    target = ("widgets", "a", cluster.namespace)
    make("a")
    with start("one"):
        assert calls.take(1) == ["one"]
        with start("two"):
            assert calls.take(1) == ["two"]
            kopf.trigger(target, registry=start.registry)
            assert calls.take(2) == ["one", "two"]
            kopf.trigger_all("sync", registry=start.registry)
            assert calls.take(2) == ["one", "two"]
        kopf.trigger(target, registry=start.registry)
        assert calls.take(1) == ["one"], "it still runs"
    with pytest.raises(LookupError, match="no running operator"):
        kopf.trigger(target, registry=start.registry)


def test_handlers_trigger_only_their_operator(cluster, make, start, calls):
    make("a")
    with start("one") as first, start("two") as second:
        assert calls.take(2) == ["one", "two"]
        for name in ("one", "two"):
            metadata = {"name": name, "labels": {"trigger": name}}
            cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            assert set(calls.take(1)) == {name}
            for operator in (first, second):
                operator.wait_until_idle()
            with calls.changed:
                assert set(calls.made) <= {name}
                calls.made.clear()
