"""Changes of caches. Section 2.2: K8."""

import asyncio
import threading

import kopf
import pytest
from kopf.testing import Operator

from .conftest import wait_ready

FOLLOWING = """
import asyncio
import kopf

maps = kopf.cache("configmaps", id="maps", labels="ours")

@kopf.on.startup()
async def start(memo, **_):
    memo.followers = [asyncio.create_task(follow(memo, initial)) for initial in (True, False)]

async def follow(memo, initial):
    while True:
        try:
            await maps.ready()
            break
        except LookupError:
            await asyncio.sleep(0.05)
    async for change in maps.changes(initial=initial):
        old = change.old and change.old["data"]["x"]
        memo.calls.append(("all" if initial else "new", change.type, change.body["data"]["x"], old))
"""


def test_k8_changes_follow_the_present_objects(run, cluster, create):
    create("cm", {"x": "0"}, labels={"ours": "y"})
    running = run(source=FOLLOWING)
    running.until("all")
    running.settle()
    cluster.patch("configmaps", "cm", {"data": {"x": "1"}})
    running.until("new")
    create("other", {"x": "2"}, labels={"ours": "y"})
    running.until("new", 2)
    cluster.delete("configmaps", "cm")
    running.until("new", 3)
    running.until("all", 4)
    later = [("MODIFIED", "1", "0"), ("ADDED", "2", None), ("DELETED", "1", "1")]
    assert running.of("all") == [(None, "0", None), *later]
    assert running.of("new") == later
    running.stop()


def test_k8_changes_and_waits_end_with_the_operator(cluster, create):
    create("cm", {"x": "0"}, labels={"ours": "y"})
    caches, seen, ended = [], threading.Event(), []

    def declare():
        caches.append(kopf.cache("configmaps", id="maps", labels="ours"))
        caches.append(kopf.cache("unknowns", id="unknown"))

    async def follow():
        async for _ in caches[0].changes():
            seen.set()
        ended.append("changes")

    async def wait():
        with pytest.raises(TimeoutError, match="the operator has ended"):
            await caches[1].ready()
        ended.append("ready")

    def wait_in_a_thread():
        # It may begin after the end of the operator.
        with pytest.raises((TimeoutError, LookupError), match=r"operator has ended|no running operator"):
            caches[1].wait_ready()
        ended.append("wait_ready")

    async def wait_for_all():
        # The changes begin last.
        in_thread = asyncio.create_task(asyncio.to_thread(wait_in_a_thread))
        await asyncio.gather(in_thread, wait(), follow())

    with Operator(cluster, declare):
        wait_ready(caches[0])
        thread = threading.Thread(target=lambda: asyncio.run(wait_for_all()))
        thread.start()
        assert seen.wait(60)
    thread.join(60)
    assert not thread.is_alive()
    assert sorted(ended) == ["changes", "ready", "wait_ready"]


@pytest.mark.kopf_embedded_only
def test_k8_a_slow_consumer_gets_merged_states(cluster, create):
    create("cm", {"x": "0"}, labels={"ours": "y"})
    caches = []
    with Operator(
        cluster, lambda: caches.append(kopf.cache("configmaps", id="maps", labels="ours"))
    ) as operator:
        (maps,) = caches
        wait_ready(maps)

        async def follow():
            seen = []
            changes = maps.changes()
            async for change in changes:
                seen.append(int(change.body["data"]["x"]))
                if len(seen) == 1:
                    path = "/api/v1/namespaces/default/configmaps/cm"
                    bodies = [
                        {
                            "apiVersion": "v1",
                            "kind": "ConfigMap",
                            "data": {"x": str(number)},
                            "metadata": {"name": "cm", "labels": {"ours": "y"}},
                        }
                        for number in range(1, 3000)
                    ]
                    await asyncio.to_thread(cluster.call_all, [("PUT", path, body) for body in bodies])
                    for _ in range(1500):
                        if maps.get("cm", "default")["data"]["x"] == "2999":
                            break
                        await asyncio.sleep(0.02)
                if seen[-1] == 2999:
                    await changes.aclose()
                    return seen

        seen = asyncio.run(follow())
        assert seen == sorted(seen) and seen[-1] == 2999 and len(seen) <= 1002
        assert operator.running
