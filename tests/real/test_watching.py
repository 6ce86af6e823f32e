"""The watched kinds and namespaces, as they are created and deleted; and the initial lists."""

import contextlib
import re
import time

import pytest

from tests.support import cluster as kube
from tests.support import proxy as proxies

PREAMBLE = """
from calls import called
import kopf
"""


@pytest.mark.contract("engine 1.2", "engine 1.4", "observed 14")
@pytest.mark.parametrize(
    "selector",
    [
        "lambda resource: resource.group == GROUP and resource.kind == 'Latecomer'",
        "kopf.EVERYTHING, group=GROUP",
        "category='late', group=GROUP",
        "GROUP, 'latecomers'",
        "GROUP, 'v1', 'lc'",
        "kind='Latecomer'",
        "singular='latecomer'",
        "shortcut='lc'",
        "'latecomers.v1.' + GROUP",
    ],
)
def test_kinds_are_selected_in_all_forms(operator, later_kind, namespace, selector):
    later_kind.install(categories=["late"], shortNames=["lc"])
    run = operator(
        PREAMBLE
        + f"""
GROUP = {later_kind.group!r}

@kopf.on.event({selector})
def event(resource, name, **_):
    called('event', name=name, plural=resource.plural)
"""
    )
    later_kind.create(namespace, "a")
    assert run.wait_for_call("event").details == {"name": "a", "plural": "latecomers"}


@pytest.mark.contract("engine 1.6")
def test_kinds_come_and_go_and_come_again(operator, later_kind, namespace):
    run = operator(
        PREAMBLE
        + f"""
@kopf.on.event(category='late', group={later_kind.group!r})
def event(name, type, **_):
    if type != 'DELETED':
        called('event', name=name)
"""
    )
    run.wait_for_log("Unresolved resources cannot be served")
    later_kind.install(categories=["late"])
    later_kind.create(namespace, "first")
    assert run.wait_for_call("event", timeout=60).details["name"] == "first"
    later_kind.remove()
    run.wait_for_log("Stopping the watch-stream for latecomers", timeout=60)
    later_kind.install(categories=["late"])
    later_kind.create(namespace, "second")
    assert run.wait_for_call("event", count=2, timeout=60).details["name"] == "second"
    run.check_alive()


def test_kind_that_gets_another_preferred_version_is_served_in_that_one(operator, later_kind, namespace):
    later_kind.install()
    later_kind.create(namespace, "a")
    run = operator(
        PREAMBLE
        + f"""
@kopf.on.event({later_kind.group!r}, 'latecomers')
def event(resource, name, memo, **_):
    memo.times = memo.get('times', 0) + 1
    called('event', name=name, version=resource.version, times=memo.times)

@kopf.on.resume({later_kind.group!r}, 'latecomers')
def resume(**_):
    called('resume')
"""
    )
    assert run.wait_for_call("event").details["version"] == "v1"
    run.wait_for_log("Handling cycle is finished")
    seen = len(run.called("event"))
    [old] = later_kind.crd["spec"]["versions"]
    later_kind.change(
        {"spec": {"versions": [{**old, "storage": False}, {**old, "name": "v2", "storage": True}]}}
    )
    # The server ends the stream of the old version, which may be listed once more before it goes.
    while (later := run.wait_for_call("event", count=seen + 1, timeout=60).details)["version"] == "v1":
        seen += 1
    # It is the same object, and what is remembered of it stays.
    assert later == {"name": "a", "version": "v2", "times": seen + 1}
    run.wait_for_log(r"Stopping the watch-stream for latecomers\.v1\.")
    run.wait_for_log("Handling cycle is finished", count=2)
    assert not run.called("resume")


def test_objects_of_a_deleted_kind_are_handled_until_they_are_gone(operator, later_kind, namespace):
    later_kind.install()
    later_kind.create(namespace, "a")
    run = operator(
        PREAMBLE
        + f"""
@kopf.on.create({later_kind.group!r}, 'latecomers')
def create(**_):
    pass

@kopf.on.delete({later_kind.group!r}, 'latecomers')
def delete(retry, **_):
    called('delete')
    if retry == 0:
        # Meanwhile, the server offers no patches of this kind any more.
        raise kopf.TemporaryError("Not yet.", delay=7)
"""
    )
    run.wait_for_log("Handling cycle is finished")
    later_kind.remove()
    assert len(run.called("delete")) == 2
    run.check_alive()


@pytest.fixture
def break_api(cluster, later_kind, namespace):
    """Makes the API of the later kind unavailable; returns the name of its APIService."""

    def broken():
        version = f"v1.{later_kind.group}"
        # The service does not exist. Without the label, the server does not restore its own APIService.
        cluster.patch(
            kube.API_SERVICES,
            None,
            version,
            {
                "metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": None}},
                "spec": {
                    "service": {"namespace": namespace, "name": "missing", "port": 443},
                    "insecureSkipTLSVerify": True,
                },
            },
        )
        cluster.await_error(f"/apis/{later_kind.group}/v1", 503)
        return version

    return broken


def test_an_unavailable_api_does_not_affect_other_kinds(
    operator, cluster, later_kind, namespace, shelf, break_api
):
    later_kind.install()
    later_kind.create(namespace, "late")
    shelf.create("first")
    version = break_api()
    run = operator(
        PREAMBLE
        + """
@kopf.on.startup()
def configure(settings, **_):
    # If anything waits for a retry of the other kind, nothing is called.
    settings.networking.error_backoffs = [3600]

@kopf.on.event('parcels')
@kopf.on.event('latecomers')
def event(name, **_):
    called('event', name=name)
"""
    )
    assert run.wait_for_call("event").details == {"name": "first"}
    warning = rf"Cannot read the resources of {re.escape(later_kind.group)}/v1: 503 "
    run.wait_for_log(warning)
    shelf.create("second")
    assert run.wait_for_call("event", count=2).details == {"name": "second"}
    # The server restores its own APIService.
    cluster.delete(kube.API_SERVICES, None, version)
    assert run.wait_for_call("event", count=3, timeout=100).details == {"name": "late"}
    assert len(re.findall(warning, run.log)) == 1
    run.check_alive()


def test_an_operator_starts_within_seconds_although_an_api_is_unavailable(
    operator, cluster, later_kind, shelf, break_api
):
    later_kind.install()
    shelf.create("first")
    # With the default settings, in which retries of a request take a minute.
    operator.write(
        PREAMBLE
        + """
@kopf.on.event('parcels')
def event(name, **_):
    called('event', name=name)
"""
    )

    def start():
        begun = time.monotonic()
        run = operator()
        run.wait_for_call("event")
        took = time.monotonic() - begun
        run.stop()
        return took, run

    usual, _ = start()
    version = break_api()
    try:
        took, run = start()
    finally:
        cluster.delete(kube.API_SERVICES, None, version)
    assert f"Cannot read the resources of {later_kind.group}/v1: 503 " in run.log
    # A busy machine may need longer, but not because of that API.
    assert took < 5 or took < 3 * usual, f"{took:.1f} s, and {usual:.1f} s without it"
    print(f"The start took {took:.2f} s, and {usual:.2f} s before the API was unavailable.")


@pytest.mark.contract("engine 1.6")
def test_namespaces_come_and_go_by_globs_and_negations(operator, cluster, parcels, new_namespace):
    def parcel(namespace, name):
        body = {"apiVersion": "testing.kopf.dev/v1", "kind": "Parcel", "metadata": {"name": name}}
        cluster.create(parcels, namespace, body)

    first, other, hidden = (new_namespace(prefix) for prefix in ("glob", "other", "glob-hidden"))
    for namespace in (first, other, hidden):
        parcel(namespace, "early")
    run = operator(
        PREAMBLE
        + """
@kopf.on.event('parcels')
def event(namespace, name, **_):
    called('event', where=namespace, name=name)
""",
        scope=("-n", "glob-*,!glob-hidden-*"),
    )
    assert run.wait_for_call("event").details == {"where": first, "name": "early"}
    second, also_hidden = new_namespace("glob"), new_namespace("glob-hidden")
    parcel(also_hidden, "late")
    parcel(second, "late")
    assert run.wait_for_call("event", count=2).details == {"where": second, "name": "late"}
    parcel(first, "late")
    assert run.wait_for_call("event", count=3).details == {"where": first, "name": "late"}


def test_namespaces_are_chosen_by_regular_expressions(operator, cluster, parcels, new_namespace):
    def parcel(namespace):
        body = {"apiVersion": "testing.kopf.dev/v1", "kind": "Parcel", "metadata": {"name": "x"}}
        cluster.create(parcels, namespace, body)

    first, other = new_namespace("re"), new_namespace("more")
    parcel(other)
    parcel(first)
    operator.write(
        PREAMBLE
        + """
import re

@kopf.on.event('parcels')
def event(namespace, **_):
    called('event', where=namespace)

kopf.configure(verbose=True)
kopf.run(namespaces=[re.compile('re-[0-9a-f]+')], standalone=True)
""",
        "main.py",
    )
    run = operator(script="main.py")
    assert run.wait_for_call("event").details == {"where": first}
    second = new_namespace("re")
    parcel(second)
    assert run.wait_for_call("event", count=2).details == {"where": second}


STREAMED = (
    PREAMBLE
    + """
@kopf.on.startup()
def stream(settings, **_):
    settings.watching.initial_streaming = True

@kopf.on.event('parcels')
def event(type, name, **_):
    called('event', type=type, name=name)
"""
)


@pytest.mark.contract("engine 1.8")
@pytest.mark.parametrize("is_rejected", [False, True])
def test_initial_objects_are_streamed_if_the_server_can(operator, shelf, cluster, tmp_path, is_rejected):
    def reject(request):
        return proxies.refusal(422, "Invalid") if "sendInitialEvents" in request.query else None

    shelf.create("old")
    with contextlib.closing(proxies.Proxy(cluster)) as proxy:
        proxy.faults += [reject] if is_rejected else []
        run = operator(STREAMED, kubeconfig=proxy.kubeconfig(tmp_path))
        assert run.wait_for_call("event").details == {"type": None, "name": "old"}
        # The watch continues after the initial objects.
        assert run.process.poll() is None
        if is_rejected:
            run.wait_for_log("cannot be streamed, listing")
        shelf.create("new")
        assert run.wait_for_call("event", count=2).details["name"] == "new"
        lists = [one for one in proxy.asked("/parcels") if "watch" not in one.query]
        assert bool(lists) == is_rejected
        assert len(proxy.asked("/parcels", sendInitialEvents="true")) == 1


@pytest.mark.contract("engine 1.8")
def test_lists_come_in_chunks(operator, shelf, cluster, tmp_path):
    names = [f"p{number}" for number in range(5)]
    for name in names:
        shelf.create(name)
    with contextlib.closing(proxies.Proxy(cluster)) as proxy:
        run = operator(
            PREAMBLE
            + """
@kopf.on.startup()
def chunks(settings, **_):
    settings.watching.chunk_size = 2

@kopf.on.event('parcels')
def event(name, **_):
    called('event', name=name)
""",
            kubeconfig=proxy.kubeconfig(tmp_path),
        )
        run.wait_for_call("event", count=5)
        assert sorted(call.details["name"] for call in run.called("event")) == names
        lists = [one.query for one in proxy.asked("/parcels") if "watch" not in one.query]
        assert [one["limit"] for one in lists] == ["2"] * 3
        assert ["continue" in one for one in lists] == [False, True, True]


@pytest.mark.contract("engine 1.8")
def test_selectors_of_the_settings_narrow_the_streams(operator, shelf, cluster, tmp_path):
    shelf.create("plain")
    shelf.create("chosen", labels={"tier": "gold"})
    with contextlib.closing(proxies.Proxy(cluster)) as proxy:
        run = operator(
            PREAMBLE
            + """
@kopf.on.startup()
def narrow(settings, **_):
    settings.watching.label_selectors['parcels'] = 'tier=gold'
    settings.watching.field_selectors['testing.kopf.dev', 'parcels'] = 'metadata.name!=other'

@kopf.on.event('parcels')
def event(name, **_):
    called('event', name=name)
""",
            kubeconfig=proxy.kubeconfig(tmp_path),
        )
        run.wait_for_call("event")
        shelf.create("other", labels={"tier": "gold"})
        shelf.create("last", labels={"tier": "gold"})
        run.wait_for_call("event", count=2)
        assert [call.details["name"] for call in run.called("event")] == ["chosen", "last"]
