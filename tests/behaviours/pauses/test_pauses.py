"""A pause of the operator: running handlers end, and nothing that waits is handled before its end."""

import asyncio
import threading

import kopf
import pytest

from tests.support.crds import PEERINGS

pytestmark = pytest.mark.kopf_embedded_only
RIVAL = {"priority": 100, "lifetime": 1000, "lastseen": "2100-01-01T00:00:00+00:00"}
PEERING = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"}}


@pytest.fixture
def pause(cluster):
    """Begins or ends a pause in favour of another operator."""
    cluster.freeze()
    cluster.apply(PEERINGS)
    cluster.create(PEERING)

    def turn(is_on):
        status = {"rival": RIVAL if is_on else None}
        cluster.patch("clusterkopfpeerings", "default", {"status": status})

    return turn


@pytest.mark.parametrize("limit", [None, 1])
def test_objects_and_events_that_wait_are_handled_after_the_pause(
    cluster, make, kopf_operator, pause, caplog, limit
):
    calls, proceed, begun, paused = [], threading.Event(), threading.Event(), threading.Event()

    def handlers():
        @kopf.on.event("widgets")
        async def event(name, spec, **_):
            calls.append(("event", name, spec["size"]))

        @kopf.on.create("widgets")
        async def create(name, spec, **_):
            calls.append(("create", name, spec["size"]))
            if name == "one":
                begun.set()
                await asyncio.to_thread(proceed.wait, 60)
            return "done"

        @kopf.daemon("widgets", labels={"watched": "yes"})
        async def daemon(stopped, **_):
            await stopped.wait()
            paused.set()

    settings = kopf.OperatorSettings()
    settings.peering.mandatory = True
    settings.queueing.worker_limit = limit
    operator = kopf_operator(handlers, settings=settings, standalone=False, identity="me")
    operator.wait_until_idle()
    make("watched", labels={"watched": "yes"})
    operator.wait_until_idle()
    make("one")
    assert begun.wait(60)
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    if limit:
        make("two")
    calls.clear()
    pause(True)
    assert paused.wait(60), "the operator knows that it is paused"
    proceed.set()
    operator.wait_until_idle()
    assert calls == []
    assert cluster.get("widgets", "one")["status"] == {"create": "done"}, "the outcome is written"
    pause(False)
    operator.wait_until_idle()
    assert ("event", "one", 2) in calls
    assert [call for call in calls if call[0] == "create"] == ([("create", "two", 1)] if limit else [])
