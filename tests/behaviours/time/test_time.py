"""Virtual time: all delays of an operator end when the test advances the clock. Days take milliseconds.

In real time, the delays of a test would take longer than a test may take.
"""

import datetime
import pathlib
import threading

import kopf
import pytest
from kopf.testing import Cluster, KopfRunner, NotSupportedError

from tests.support.crds import PEERINGS

# On purpose: operators are not strict here.
HANDLERS_RAISE = True

pytestmark = pytest.mark.kopf_embedded_only
HOUR, DAY = 3600, 86_400


@pytest.fixture
def frozen(cluster):
    cluster.freeze()
    return cluster


def test_a_back_off_of_three_days(frozen, run, make, handled):
    running = run()
    make(spec={"delays": [3 * DAY, 10]})
    running.settle()
    frozen.advance(3 * DAY - 1)
    assert running.of("patient") == [(0, 0)]
    frozen.advance(1)
    assert running.of("patient") == [(0, 0), (1, 3 * DAY)]
    frozen.advance(datetime.timedelta(seconds=10))
    assert running.of("patient") == [(0, 0), (1, 3 * DAY), (2, 3 * DAY + 10)]
    handled()


def test_what_is_written_follows_the_time(frozen, run, make):
    running = run()
    before = frozen.now
    body = make(spec={"delays": [DAY]})
    running.settle()
    created = datetime.datetime.fromisoformat(body["metadata"]["creationTimestamp"])
    assert before - datetime.timedelta(seconds=1) < created <= before
    progress = frozen.get("widgets", "one")["metadata"]["annotations"]["kopf.zalando.org/patient"]
    assert (before + datetime.timedelta(days=1)).isoformat(timespec="microseconds")[:-6] in progress
    frozen.advance(5 * DAY)
    assert frozen.now - before == datetime.timedelta(days=5)
    created = datetime.datetime.fromisoformat(make("late", spec={})["metadata"]["creationTimestamp"])
    assert created - before > datetime.timedelta(days=4.99)


def test_a_time_limit_is_reached_in_virtual_time(frozen, run, make, caplog):
    running = run()
    make(spec={"hours": True})
    running.settle()
    frozen.advance(DAY)
    assert len(running.of("limited_in_time")) == 6
    assert "has timed out" in caplog.text or "time out" in caplog.text


def test_a_limit_of_tries_is_reached_in_virtual_time(frozen, run, make, handled):
    running = run()
    make(spec={"tries": True})
    running.settle()
    frozen.advance(DAY - 1)
    assert len(running.of("limited_in_tries")) == 1
    frozen.advance(10 * DAY)
    assert len(running.of("limited_in_tries")) == 3
    handled()


def test_a_timer_goes_round_for_every_interval(frozen, run, make):
    running = run()
    make(spec={"interval": True})
    running.settle()
    assert running.of("steady") == []
    frozen.advance(9)
    assert running.of("steady") == []
    frozen.advance(1)
    assert len(running.of("steady")) == 1
    frozen.advance(HOUR)
    assert len(running.of("steady")) == 61


def test_a_timer_waits_for_idleness(frozen, run, make):
    running = run()
    make(spec={"idle": 1})
    running.settle()
    frozen.advance(200)
    frozen.patch("widgets", "one", {"spec": {"idle": 2}})
    running.settle()
    frozen.advance(299)
    assert running.of("when_idle") == []
    frozen.advance(1)
    assert len(running.of("when_idle")) == 1


@pytest.mark.parametrize("kind, name", [("watch", "watchman"), ("guard", "guard")])
def test_daemons_wait_in_virtual_time(frozen, run, make, kind, name):
    running = run()
    make(spec={kind: True})
    running.settle()
    before = len(running.of(name))
    frozen.advance(24 * HOUR)
    assert len(running.of(name)) - before == 24
    frozen.delete("widgets", "one")
    frozen.wait_until_gone("widgets", "one")
    running.settle()
    frozen.advance(DAY)
    assert len(running.of(name)) - before == 24


def test_a_daemon_is_cancelled_after_its_back_off_and_abandoned_after_its_timeout(frozen, cluster, run, make):
    with pytest.warns(ResourceWarning, match="did not exit in time"):
        running = run({"rounds": 2})
        make(spec={"stubborn": True})
        running.settle()
        frozen.delete("widgets", "one")
        running.settle()
        frozen.advance(99)
        assert running.of("stubborn_stopped") == []
        frozen.advance(1)
        assert running.of("stubborn_stopped") == [None]
        assert frozen.find("widgets", "one") is not None
        frozen.advance(1000)
        assert frozen.find("widgets", "one") is None
        running.stop()


def test_an_operator_stops_in_frozen_time(frozen, run, make):
    before = frozen.now
    running = run({"rounds": 1})
    make(spec={"stubborn": True})
    running.until("stubborn")
    running.stop()
    assert running.of("stubborn_stopped") == [None]
    assert frozen.now - before >= datetime.timedelta(seconds=100)


def test_unexpected_errors_slow_an_object_down_step_by_step(frozen, run, make):
    running = run({"configure": lambda settings: setattr(settings.queueing, "error_delays", [1000, 10_000])})
    rejected = lambda: [it for it in frozen.requests if it.method == "PATCH" and it.code == 422]  # noqa: E731
    frozen.inject("code", 422, verb="patch", resource="widgets", times=3)
    make(spec={"delays": []})
    running.settle()
    assert len(rejected()) == 1
    frozen.advance(999)
    assert len(rejected()) == 1
    frozen.advance(1)
    assert len(rejected()) == 2
    frozen.advance(9999)
    assert len(rejected()) == 2
    frozen.advance(1)
    assert len(rejected()) == 3
    frozen.advance(10_000)
    assert frozen.get("widgets", "one")["metadata"]["annotations"]


def test_requests_are_repeated_after_their_back_offs(frozen, run, make):
    running = run({"configure": lambda settings: setattr(settings.networking, "error_backoffs", [60, 600])})
    frozen.inject("code", 503, verb="patch", resource="widgets", times=2)
    make(spec={"delays": []})
    rejected = lambda: [it for it in frozen.requests if it.code == 503]  # noqa: E731
    frozen.advance(59)
    assert len(rejected()) == 1
    frozen.advance(1)
    assert len(rejected()) == 2
    frozen.advance(600)
    assert len(running.of("patient")) == 1
    assert frozen.get("widgets", "one")["metadata"]["annotations"]


def test_peers_keep_alive_and_expire_in_virtual_time(frozen, kopf_operator):
    frozen.apply(PEERINGS)
    peering = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"}}
    lastseen = frozen.now.isoformat()
    rival = {"priority": 100, "lifetime": 60, "lastseen": lastseen}
    frozen.create({**peering, "status": {"rival": rival}})
    calls = []

    def handlers():
        @kopf.on.resume("configmaps", id="seen")
        @kopf.on.create("configmaps", id="seen")
        def seen(**_):
            calls.append("seen")

    settings = kopf.OperatorSettings()
    settings.peering.lifetime = 600
    settings.peering.mandatory = True
    operator = kopf_operator(handlers, settings=settings, standalone=False, identity="me")
    frozen.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}")
    operator.wait_until_idle()
    frozen.advance(58)
    assert calls == []
    first = frozen.get("clusterkopfpeerings", "default")["status"]["me"]["lastseen"]
    frozen.advance(3)
    assert "seen" in calls
    assert "rival" not in frozen.get("clusterkopfpeerings", "default")["status"]
    frozen.advance(601)
    assert frozen.get("clusterkopfpeerings", "default")["status"]["me"]["lastseen"] > first


def test_the_watch_event_of_a_write_is_awaited_in_virtual_time(frozen, run, make):
    gate = threading.Event()
    configure = lambda settings: setattr(settings.persistence, "consistency_timeout", 500)  # noqa: E731
    running = run({"configure": configure, "gate": gate})
    make(spec={"gate": 1})
    running.until("gated")
    frozen.patch("widgets", "one", {"spec": {"gate": 2}})
    make("another", spec={"gate": 3})
    running.until("gated", 2)  # so the change before it has come, too
    frozen.inject("silence", resource="widgets")
    gate.set()
    running.settle()
    frozen.advance(499)
    assert running.of("gated") == [1, 3]
    frozen.advance(1)
    assert running.of("gated") == [1, 3, 2]


def test_startup_handlers_are_repeated_while_time_is_frozen(frozen, kopf_operator):
    tries = []

    def handlers():
        @kopf.on.startup()
        def start(retry, **_):
            tries.append(retry)
            if retry < 2:
                raise kopf.TemporaryError("not yet", delay=DAY)

    before = frozen.now
    kopf_operator(handlers)
    assert tries == [0, 1, 2]
    assert frozen.now - before == datetime.timedelta(days=2)


def test_the_runner_of_the_command_line_goes_by_the_same_time(frozen, make, handled):
    calls = []

    @kopf.on.create("widgets", registry=(registry := kopf.OperatorRegistry()))
    def slow(retry, **_):
        calls.append(retry)
        if not retry:
            raise kopf.TemporaryError("not yet", delay=DAY)

    file = str(pathlib.Path(__file__).parents[1] / "testkit" / "nothing.py")
    with KopfRunner(["run", "-A", file], cluster=frozen, timeout=60, registry=registry) as runner:
        make()
        frozen.wait_for("widgets", "one", lambda it: it is not None and "annotations" in it["metadata"])
        frozen.advance(DAY)
        assert calls == [0, 1]
        handled()
    assert runner.exit_code == 0


def test_a_handler_that_does_not_return_holds_the_time(frozen, run, make):
    gate = threading.Event()
    running = run({"gate": gate})
    make(spec={"gate": 1})
    running.until("gated")
    with pytest.raises(
        TimeoutError, match=r"advance\(5\) did not finish within 0.1 seconds of real time: 5 seconds"
    ):
        frozen.advance(5, timeout=0.1)
    gate.set()
    frozen.advance(5)


def test_two_operators_live_in_one_time(frozen, run, make):
    first, second = run(), run()
    make(spec={"interval": True})
    frozen.advance(10 + HOUR)
    assert (len(first.of("steady")), len(second.of("steady"))) == (61, 61)


def test_time_goes_on_from_where_it_is_and_is_real_in_the_next_cluster():
    real = lambda: datetime.datetime.now(datetime.UTC)  # noqa: E731
    with Cluster() as cluster:
        cluster.advance(DAY)
        assert cluster.now - real() > datetime.timedelta(hours=23)
        cluster.freeze()
        assert cluster.now == cluster.now
        cluster.thaw()
        assert cluster.now - real() > datetime.timedelta(hours=23)
        with pytest.raises(ValueError, match="does not go back"):
            cluster.advance(-1)
    with Cluster() as cluster:
        assert cluster.now - real() < datetime.timedelta(minutes=1)


def test_elsewhere_time_cannot_be_moved():
    with pytest.raises(NotSupportedError, match="embedded"):
        Cluster("kubeconfig").advance(1)
    with pytest.raises(NotSupportedError, match="embedded"):
        Cluster("assets").freeze()


class Endless:
    """A pause before each next attempt, without an end."""

    def __iter__(self):
        while True:
            yield 60


def test_requests_are_repeated_without_an_end_if_their_back_offs_have_none(frozen, run, make, caplog):
    running = run({"configure": lambda settings: setattr(settings.networking, "error_backoffs", Endless())})
    frozen.inject("code", 503, verb="patch", resource="widgets", times=150)
    make(spec={"delays": []})
    frozen.advance(60 * 151)
    assert len([it for it in frozen.requests if it.code == 503]) == 150
    assert len(running.of("patient")) == 1
    assert frozen.get("widgets", "one")["metadata"]["annotations"]
    assert "Request attempt #150 failed; will retry" in caplog.text
