"""The wait until everything is idle: what counts as busy, what is not known, and who is named."""

import dataclasses
import itertools

import pytest
from kopf._testing import clock
from kopf._testing.clock import ClockControl
from kopf._testing.idle_tracker import IdleTracker


class FakeTime:
    """The module `time`, in which only `sleep()` takes time."""

    def __init__(self) -> None:
        self.now, self.delay = 1000.0, 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds + self.delay


@dataclasses.dataclass
class FakeClock:
    """The clock of the process, with engines and servers that do what the test sets."""

    time: FakeTime
    busy: list = dataclasses.field(default_factory=list)
    in_transit: list = dataclasses.field(default_factory=list)
    unknown: list = dataclasses.field(default_factory=list)
    turn: int = 1
    turns_per_observation: int = 0
    threads: int = 0
    ends_at: float = float("inf")
    bytes: int = 0
    frozen: bool = True
    jumps: int = 0
    trackers: list = dataclasses.field(default_factory=list)
    moved_by: set = dataclasses.field(default_factory=set)
    frozen_by: set = dataclasses.field(default_factory=set)

    def jump_to_next(self):
        self.jumps += 1
        return True

    def activity(self):
        return self.bytes

    def turns(self):
        return self.turn

    def observe(self):
        self.turn += self.turns_per_observation
        if self.time.now >= self.ends_at:
            return [], [], []
        return list(self.busy), list(self.in_transit), list(self.unknown)

    def runnable_threads(self):
        return self.threads


@pytest.fixture
def fake_time(monkeypatch):
    fake_time = FakeTime()
    monkeypatch.setattr(clock, "time", fake_time)
    return fake_time


@pytest.fixture
def process(fake_time):
    return FakeClock(fake_time)


@pytest.fixture
def control(process):
    control = ClockControl(lambda: 0)
    control.clock = process
    return control


@pytest.fixture
def elapsed(control, fake_time):
    def wait(timeout=10):
        before = fake_time.now
        control.wait_until_idle(timeout)
        return fake_time.now - before

    return wait


def test_idleness_that_is_certain_takes_no_time(elapsed):
    assert elapsed() == 0
    assert elapsed(timeout=0) == 0


@pytest.mark.parametrize("kind", ["busy", "in_transit", "unknown"])
def test_the_wait_lasts_as_long_as_the_work(elapsed, process, fake_time, kind):
    setattr(process, kind, ["it"])
    process.ends_at = fake_time.now + 0.03
    assert 0.03 <= elapsed() < 0.04


def test_known_work_is_never_taken_for_idle(control, process):
    process.busy = ["the request PATCH /api", "the thread of the engine"]
    with pytest.raises(TimeoutError) as failure:
        control.wait_until_idle(600)
    assert str(failure.value) == (
        "The operator was not idle within 600 seconds. "
        "Busy: the request PATCH /api, the thread of the engine."
    )


def test_changes_during_the_observation_are_activity(control, process):
    process.turns_per_observation = 1
    with pytest.raises(TimeoutError, match="Busy: activity between two checks"):
        control.wait_until_idle(5)


def test_what_is_not_known_must_be_quiet_for_a_while(elapsed, process):
    process.unknown = ["Daemon 'fn' of default/one"]
    assert clock.QUIET_PERIOD <= elapsed() < clock.QUIET_PERIOD + 0.01


def test_what_is_not_read_must_be_quiet_for_longer(elapsed, process):
    process.in_transit = ["5 bytes"]
    assert clock.QUIET_PERIOD_IN_TRANSIT <= elapsed() < clock.QUIET_PERIOD_IN_TRANSIT + 0.1


def test_the_quiet_period_begins_again_with_activity(elapsed, process, fake_time, control):
    process.unknown = ["a daemon"]
    start = fake_time.now
    control._activity_marker = lambda: min(fake_time.now, start + 0.3)
    assert elapsed() >= 0.3 + clock.QUIET_PERIOD


def test_the_quiet_period_grows_with_the_delays_of_a_busy_machine(elapsed, process, fake_time):
    process.unknown = ["a daemon"]
    fake_time.delay = 0.03
    assert elapsed() >= clock.DELAYS_PER_QUIET_PERIOD * 0.03


def test_time_in_which_threads_wait_for_a_processor_counts_less(elapsed, process):
    process.unknown = ["a daemon"]
    process.threads = 1
    assert elapsed() >= clock.SLOWDOWN_BY_THREADS * clock.QUIET_PERIOD


@pytest.mark.parametrize(("delay", "threads"), [(0.6, 0), (0.6, 3), (0, 3)])
def test_the_quiet_period_has_an_upper_limit(elapsed, process, fake_time, delay, threads):
    process.unknown = ["a daemon"]
    process.threads, fake_time.delay = threads, delay
    assert elapsed() < clock.LONGEST_QUIET_PERIOD + 2


@pytest.mark.parametrize(("delay", "threads"), [(0.0, 1), (0.1, 0)])
def test_time_is_advanced_until_it_is_done_on_a_busy_machine(control, process, fake_time, delay, threads):
    process.unknown = ["a daemon"]
    fake_time.delay, process.threads = delay, threads
    control.advance_until(lambda: process.jumps == 2, 30)
    assert process.jumps == 2


def test_a_thread_without_deadlines_is_awaited_with_pauses(control, process, fake_time):
    rounds = itertools.count()

    def jump_to_next():
        assert next(rounds) < 10_000, "it does not pause"
        return False

    process.jump_to_next = jump_to_next
    before = fake_time.now
    control.advance_until(lambda: fake_time.now >= before + 3, 30)
    assert 3 <= fake_time.now - before < 3.1


def test_the_wait_ends_when_it_is_done(control, process, fake_time):
    process.busy = ["a daemon that is stopped"]
    before = fake_time.now
    control.advance_until(lambda: fake_time.now >= before + 3, 30)
    assert 3 <= fake_time.now - before < 3.1
    assert process.jumps == 0


def test_work_of_handlers_is_named(control):
    tracker = IdleTracker()
    tracker.work_started(1, "Handler 'fn' of default/one")
    tracker.work_started(2, "Timer 'tick' of default/one")
    with control.track(tracker), pytest.raises(TimeoutError) as failure:
        control.wait_until_idle(1)
    assert str(failure.value).endswith("Busy: Handler 'fn' of default/one, Timer 'tick' of default/one.")
    tracker.work_finished(1)
    tracker.work_finished(2)
    with control.track(tracker):
        control.wait_until_idle(0)


def test_the_operators_of_other_clusters_are_awaited(control, process):
    other, tracker = ClockControl(lambda: 0), IdleTracker()
    other.clock = process
    tracker.work_started(1, "Handler 'fn' of default/one")
    with other.track(tracker):
        with pytest.raises(TimeoutError, match="Busy: Handler 'fn' of default/one"):
            control.wait_until_idle(1)
        tracker.work_finished(1)
        control.wait_until_idle(0)


def test_advancing_names_who_is_busy(control, process):
    moments = itertools.count(100)
    process.freeze = process.thaw = lambda: None
    process.now = 0
    process.busy = ["Handler 'fn' of default/one"]
    process.jump_to_next = lambda limit: next(moments)
    with pytest.raises(TimeoutError) as failure:
        control.advance(5, timeout=3)
    assert str(failure.value) == (
        "advance(5) did not finish within 3 seconds of real time: 5 seconds of virtual time remain. "
        "A handler has not returned, or there are too many calls for this timeout. "
        "Busy: Handler 'fn' of default/one."
    )
    assert next(moments) == 100, "time was not moved"


def test_an_operator_is_busy_until_its_thread_has_an_event_loop_and_when_it_ends():
    tracker = IdleTracker()
    assert tracker.busy_reasons == []
    tracker.thread_starts()
    assert tracker.busy_reasons == ["the start of the operator's thread"]
    tracker.observe(None)
    assert tracker.busy_reasons == []
    tracker.set_engine(lambda: 0, list)
    assert tracker.busy_reasons == ["the login of an operator"]
    tracker.engine_connected()
    assert tracker.busy_reasons == []
    tracker.work_started(1, "a handler that is lost")
    tracker.thread_ends()
    assert tracker.busy_reasons == []


def test_messages_of_the_engine_are_busy_until_they_are_taken():
    tracker, pending = IdleTracker(), [3]
    tracker.set_engine(lambda: pending[0], list)
    tracker.engine_connected()
    assert tracker.busy_reasons == ["messages of the engine to an event loop"]
    pending[0] = 0
    assert tracker.busy_reasons == []


def test_a_daemon_has_an_unknown_state_and_a_timer_is_busy_after_a_wait():
    tracker = IdleTracker()
    tracker.daemon_running(1, "Daemon 'fn' of default/one")
    assert (tracker.busy_reasons, tracker.running_daemons) == ([], ["Daemon 'fn' of default/one"])
    tracker.daemon_waiting(1)
    assert (tracker.busy_reasons, tracker.running_daemons) == ([], [])
    tracker.work_started(2, "Timer 'fn' of default/one")
    tracker.daemon_waiting(2)
    assert tracker.busy_reasons == []
    tracker.work_started(2, "Timer 'fn' of default/one")
    assert (tracker.busy_reasons, tracker.running_daemons) == (["Timer 'fn' of default/one"], [])


def test_a_sleep_whose_time_has_come_is_busy_until_it_ends(monkeypatch):
    class Native:
        now = 0

        def observe(self):
            return [], [], []

    monkeypatch.setattr(clock, "VirtualTime", Native)
    virtual = clock.VirtualClock()
    with virtual._register_sleeper(5, lambda: None, lambda: None):
        assert virtual.observe() == ([], [], [])
        virtual._native.now = 5
        assert virtual.observe()[0] == ["a sleep whose time has come"]
    assert virtual.observe() == ([], [], [])
