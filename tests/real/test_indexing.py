"""Indices are filled before anything is handled, follow the cluster, and never block the operator."""

import contextlib
import time

import pytest

from tests.support import proxy as proxies

PREAMBLE = """
from calls import called
import kopf
"""

LOOK = """
@kopf.on.event('crates')
def look(by_size, type, name, **_):
    called('look', name=name, seen={k: sorted(store) for k, store in by_size.items()})
"""


def crate(cluster, crates, namespace, name, size=1):
    body = {"apiVersion": "testing.kopf.dev/v1", "kind": "Crate"}
    cluster.create(crates, namespace, {**body, "metadata": {"name": name}, "spec": {"size": size}})


@pytest.mark.contract("engine 10")
def test_all_is_indexed_before_anything_is_handled(operator, shelf, cluster, crates):
    names = [f"p{number:02}" for number in range(30)]
    for name in names:
        shelf.create(name, {"size": 1})
    crate(cluster, crates, shelf.namespace, "c")
    run = operator(
        PREAMBLE
        + """
import asyncio

@kopf.on.startup()
def limit(settings, by_size, **_):
    settings.queueing.worker_limit = 1
    called('startup', size=len(by_size))

@kopf.index('parcels')
async def by_size(spec, name, **_):
    called('index', name=name)
    await asyncio.sleep(0.01)
    return {spec['size']: name}

@kopf.on.resume('parcels')
@kopf.on.create('parcels')
def create(by_size, name, **_):
    called('handle', name=name, seen=len(by_size[1]))

@kopf.on.event('crates')
def look(by_size, **_):
    called('look', seen=len(by_size[1]))
"""
    )
    run.wait_for_call("handle", count=30)
    run.wait_for_call("look")
    order = [call.handler for call in run.calls]
    assert order[0] == "startup" and run.called("startup")[0].details == {"size": 0}
    assert set(order[1:31]) == {"index"}
    assert sorted(call.details["name"] for call in run.called("handle")) == names
    assert {call.details["seen"] for call in [*run.called("handle"), *run.called("look")]} == {30}


def test_indices_follow_the_objects(operator, shelf, cluster, crates):
    shelf.create("a", {"size": 1})
    shelf.create("b", {"size": 1})
    run = operator(
        PREAMBLE
        + """
@kopf.index('parcels', labels={'hidden': kopf.ABSENT})
def by_size(spec, name, **_):
    if spec['size'] < 0:
        return {}
    return {spec['size']: name} if spec['size'] else None

@kopf.on.event('parcels')
def event(type, by_size, name, **_):
    called('event', type=type, name=name, seen={k: sorted(store) for k, store in by_size.items()})
"""
        + LOOK
    )
    run.wait_for_call("event", count=2)
    assert [call.details["seen"] for call in run.calls] == [{"1": ["a", "b"]}] * 2
    expected = [
        ({"spec": {"size": 2}}, {"1": ["b"], "2": ["a"]}),
        ({"spec": {"size": 0}}, {"1": ["b"], "2": ["a"]}),
        ({"spec": {"size": -1}}, {"1": ["b"]}),
        ({"spec": {"size": 3}}, {"1": ["b"], "3": ["a"]}),
        ({"metadata": {"labels": {"hidden": "yes"}}}, {"1": ["b"]}),
    ]
    for count, (patch, seen) in enumerate(expected, start=3):
        shelf.patch("a", patch)
        assert run.wait_for_call("event", count=count).details["seen"] == seen
    shelf.delete("b")
    gone = run.wait_for_call("event", count=8)
    assert (gone.details["type"], gone.details["seen"]) == ("DELETED", {})


def test_errors_keep_or_discard_the_values(operator, shelf):
    shelf.create("a", {"size": 1})
    run = operator(
        PREAMBLE
        + """
def check(spec):
    if spec['size'] == 2:
        raise ValueError("boo")
    return spec['size']

@kopf.index('parcels')
def ignoring(spec, **_):
    return check(spec)

@kopf.index('parcels', errors=kopf.ErrorsMode.PERMANENT)
def strict(spec, **_):
    return check(spec)

@kopf.index('parcels', errors=kopf.ErrorsMode.TEMPORARY, backoff=0)
def patient(spec, retry, **_):
    return check(spec)

@kopf.on.event('parcels')
def event(ignoring, strict, patient, **_):
    called('event', seen=[[*index.get(None, [])] for index in (ignoring, strict, patient)])
"""
    )
    run.wait_for_call("event")
    for count, size in enumerate((2, 3), start=2):
        shelf.patch("a", {"spec": {"size": size}})
        run.wait_for_call("event", count=count)
    assert [call.details["seen"] for call in run.called("event")] == [
        [[1], [1], [1]],
        [[1], [], []],
        [[3], [], [3]],
    ]
    run.wait_for_log(r"Indexer 'ignoring' failed with an exception and will ignore it: boo")
    run.wait_for_log(r"Indexer 'strict' failed with an exception and will stop now: boo")
    assert "status" not in shelf.get("a")


def test_filter_that_fails_at_the_start_does_not_block_the_operator(operator, shelf):
    shelf.create("bad", {"size": 1})
    shelf.create("good", {"size": 2})
    run = operator(
        PREAMBLE
        + """
FAILED = []

@kopf.on.startup()
def hurry(settings, **_):
    settings.queueing.error_delays = [0.1]

def fails_at_first(name, **_):
    if name == 'bad' and len(FAILED) < 3:
        FAILED.append(name)
        raise ValueError("what a filter")
    return True

@kopf.index('parcels', when=fails_at_first)
def by_size(spec, name, **_):
    return {spec['size']: name}

@kopf.on.create('parcels')
def create(by_size, name, **_):
    called(name, seen=sorted(by_size))
"""
    )
    assert run.wait_for_call("good").details["seen"] == [2]
    # The object is not dropped: indexing is retried until the filter succeeds.
    assert run.wait_for_call("bad").details["seen"] == [1, 2]
    run.wait_for_log(r"Throttling for 0\.1 seconds due to an unexpected error: ValueError")


@pytest.mark.contract("engine 0.5")
def test_indices_are_arguments_of_filters_and_override_others(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.index('parcels')
def retry(name, **_):
    return name

@kopf.index('parcels', id='sizes')
def anything(spec, **_):
    return {spec['size']: True}

@kopf.on.create('parcels', when=lambda sizes, retry, **_: 7 in sizes and len(retry) > 0)
def create(retry, sizes, param, **_):
    called('create', retry=repr(retry), sizes=repr(sizes))
"""
    )
    shelf.create("a", {"size": 7})
    assert run.wait_for_call("create").details == {"retry": "{None: ['a']}", "sizes": "{7: [True]}"}


def test_objects_that_vanish_unseen_leave_the_indices(operator, shelf, cluster, crates, tmp_path):
    shelf.create("stays", {"size": 1})
    shelf.create("goes", {"size": 2})
    crate(cluster, crates, shelf.namespace, "first")
    with contextlib.closing(proxies.Proxy(cluster)) as proxy:
        run = operator(
            PREAMBLE
            + """
@kopf.index('parcels')
def by_size(spec, name, **_):
    return {spec['size']: name}
"""
            + LOOK,
            kubeconfig=proxy.kubeconfig(tmp_path),
        )
        assert run.wait_for_call("look").details["seen"] == {"1": ["stays"], "2": ["goes"]}

        def too_old(request):
            is_watch = "watch" in request.query and request.path.endswith("/parcels")
            return proxies.refusal(410, "Expired") if is_watch else None

        proxy.faults.append(too_old)
        proxy.cut()
        shelf.delete("goes")
        until, count = time.monotonic() + 30, 2
        crate(cluster, crates, shelf.namespace, "c2")
        while run.wait_for_call("look", count=count).details["seen"] != {"1": ["stays"]}:
            assert time.monotonic() < until, "it never left the index"
            count += 1
            crate(cluster, crates, shelf.namespace, f"c{count}")


def test_kinds_that_come_later_are_indexed_without_blocking(operator, shelf, cluster, later_kind):
    shelf.create("a", {"size": 1})
    run = operator(
        PREAMBLE
        + f"""
@kopf.index('testing.kopf.dev', 'parcels')
@kopf.index('{later_kind.group}', 'latecomers')
def names(name, **_):
    return name

@kopf.on.event('{later_kind.group}', 'latecomers')
@kopf.on.event('testing.kopf.dev', 'parcels')
def event(names, name, **_):
    called(name, seen=sorted(names[None]))
"""
    )
    assert run.wait_for_call("a").details["seen"] == ["a"]
    later_kind.install()
    later_kind.create(shelf.namespace, "late")
    assert run.wait_for_call("late", timeout=60).details["seen"] == ["a", "late"]
    shelf.create("b", {"size": 1})
    assert run.wait_for_call("b").details["seen"] == ["a", "b", "late"]
