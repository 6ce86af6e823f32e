"""The shutdown of an operator: its waits, a forced exit, and blocked event loops."""

import asyncio
import concurrent.futures
import gc
import logging
import signal
import subprocess
import sys
import threading
import time
import weakref
from types import SimpleNamespace

import kopf
import pytest
from kopf._runtime import shutdown
from kopf._runtime.loop_monitor import EventLoopMonitor
from kopf._runtime.shutdown import ProcessShutdown, Shutdown, process_shutdown_var
from kopf._runtime.stop_flags import is_raised, raise_flag


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


class Loop:
    """Calls nothing by itself."""

    def __init__(self):
        self.later = []

    def call_later(self, delay, fn):
        self.later.append((delay, fn))
        return asyncio.TimerHandle(delay, fn, (), self)

    def get_debug(self):
        return False


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(shutdown, "time", clock)
    return clock


def call(id, began):
    return (SimpleNamespace(id=id, fn=None), logging.getLogger("x"), began)


def invoker(*calls):
    return SimpleNamespace(running=dict(enumerate(calls)))


def test_the_log_shows_what_the_exit_waits_for(clock, caplog):
    caplog.set_level(logging.INFO)
    loop, running = Loop(), invoker(call("two", 98), call("one", 90))
    Shutdown(loop, running, kopf.OperatorSettings()).begin()
    [(delay, report)] = loop.later
    clock.now += delay
    report()
    assert caplog.messages == ["Waiting for 2 handlers: one (13 s), two (5 s)."]
    assert [delay for delay, _ in loop.later] == [3, 10], "and again later"
    running.running.clear()
    report()
    assert len(caplog.messages) == 1, "there is nothing to report"


class Embedded:
    """The calls of an operator in the loop of an application."""

    def __init__(self):
        self.running = {}


@pytest.mark.parametrize("turns", [0, 2], ids=["before the first report", "after it"])
def test_nothing_of_an_operator_stays_in_the_loop_after_its_end(turns, monkeypatch):
    monkeypatch.setattr(shutdown, "REPORT_AFTER", 0.0)

    async def main():
        running = Embedded()
        leaving = Shutdown(asyncio.get_running_loop(), running, kopf.OperatorSettings())
        leaving.begin()
        for _ in range(turns):
            await asyncio.sleep(0)
        leaving.end()
        known = weakref.ref(running)
        del running, leaving
        gc.collect()
        assert known() is None

    asyncio.run(main())


def test_many_handlers_are_counted(clock):
    calls = [call(f"h{n}", 90) for n in range(7)]
    assert shutdown.describe_calls(calls) == (
        "7 handlers: h0 (10 s), h1 (10 s), h2 (10 s), h3 (10 s), h4 (10 s), 2 more"
    )


async def coroutine(**_):
    pass


def function(**_):
    pass


@pytest.mark.parametrize(
    "fns, text",
    [
        ([coroutine, function], "function() was running in a thread; exiting, as it cannot be stopped."),
        ([coroutine], "coroutine() was running; exiting, as it has not ended when cancelled."),
        ([], None),
    ],
)
def test_a_process_that_has_lost_its_lease_does_not_wait_for_running_handlers(clock, caplog, fns, text):
    calls = [(SimpleNamespace(id="id", fn=fn), logging.getLogger("x"), 90) for fn in fns]
    text = f"Leadership was lost while {text}" if text else "they run"
    failure = ("leadership", "they run", None)
    embedded = Shutdown(Loop(), invoker(*calls), kopf.OperatorSettings())
    assert embedded.check(failure) == ("leadership", text, None)
    assert embedded.check(None) is None
    assert embedded.check(("other", "a bug", None)) == ("other", "a bug", None)
    ends = []
    token = process_shutdown_var.set(ProcessShutdown(ends.append))
    try:
        Shutdown(Loop(), invoker(*calls), kopf.OperatorSettings()).check(failure)
    finally:
        process_shutdown_var.reset(token)
    assert (ends, caplog.messages) == ([1], [text])


@pytest.mark.parametrize(
    "signum, after, is_forced",
    [
        (signal.SIGINT, 1.0, True),
        (signal.SIGINT, 0.1, False),  # the same Ctrl+C, from the terminal and from a parent process
        (signal.SIGTERM, 1.0, False),
    ],
)
def test_a_second_interrupt_ends_the_process(clock, caplog, signum, after, is_forced):
    ended = []
    token = process_shutdown_var.set(ProcessShutdown(lambda: ended.append(True)))
    try:
        leaving = Shutdown(Loop(), invoker(call("one", 99)), kopf.OperatorSettings())
    finally:
        process_shutdown_var.reset(token)
    leaving.interrupt(signal.SIGINT)
    assert not ended, "it is not even stopping"
    leaving.begin()
    clock.now += after
    leaving.interrupt(signum)
    assert bool(ended) == is_forced
    assert ("Not finished: 1 handler: one (" in caplog.text) == is_forced


def test_applications_that_embed_an_operator_are_not_ended(clock, monkeypatch):
    forced = []
    monkeypatch.setattr(ProcessShutdown, "force", lambda _, calls: forced.append(calls))
    leaving = Shutdown(Loop(), invoker(), kopf.OperatorSettings())
    leaving.begin()
    clock.now += 10
    leaving.interrupt(signal.SIGINT)
    assert not forced


def test_the_process_waits_for_threads_and_can_be_interrupted(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(shutdown, "REPORT_AFTER", 0.0)
    release = threading.Event()
    settings = kopf.OperatorSettings()
    settings.execution.executor = concurrent.futures.ThreadPoolExecutor()
    settings.execution.executor.submit(release.wait)
    ended = []

    def end():
        ended.append(True)
        release.set()

    waiting = ProcessShutdown(end)
    waiting.leave([call("one", 0.0)], time.monotonic(), settings)

    class Interrupting(logging.Handler):
        def emit(self, record):
            if record.getMessage().startswith("Waiting for 1 handler: one ("):
                signal.raise_signal(signal.SIGINT)

    root = logging.getLogger()
    handler = Interrupting()
    root.addHandler(handler)
    # The signal is ignored in processes that a shell has started in the background.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        waiting.wait()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, inherited)
        root.removeHandler(handler)
    assert ended
    assert "Press Ctrl+C again" in caplog.text and "stopped at once" in caplog.text


def test_an_ignored_interrupt_stays_ignored_while_the_process_waits(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(shutdown, "REPORT_AFTER", 0.0)
    release = threading.Event()
    settings = kopf.OperatorSettings()
    settings.execution.executor = concurrent.futures.ThreadPoolExecutor()
    settings.execution.executor.submit(release.wait)
    ended, seen = [], []
    waiting = ProcessShutdown(lambda: ended.append(True))
    waiting.leave([call("one", 0.0)], time.monotonic(), settings)

    class Interrupting(logging.Handler):
        def emit(self, record):
            if record.getMessage().startswith("Waiting for 1 handler: one ("):
                signal.raise_signal(signal.SIGINT)
                seen.append(signal.getsignal(signal.SIGINT))
                release.set()

    root = logging.getLogger()
    handler = Interrupting()
    root.addHandler(handler)
    inherited = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        waiting.wait()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        release.set()
        signal.signal(signal.SIGINT, inherited)
        root.removeHandler(handler)
    assert seen and set(seen) == {signal.SIG_IGN}
    assert not ended and "Ctrl+C" not in caplog.text


def test_the_process_does_not_wait_if_nothing_is_left():
    waiting = ProcessShutdown()
    waiting.wait()
    waiting.leave([], 0.0, kopf.OperatorSettings())
    waiting.wait()


class Reports(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []
        self.came = threading.Event()

    def emit(self, record):
        self.texts.append(record.getMessage())
        self.came.set()


@pytest.fixture
def reports():
    handler = Reports()
    root = logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


def test_a_blocked_loop_is_reported_with_the_handler_and_the_line(reports):
    def wait():
        assert reports.came.wait(30)

    async def fn():
        wait()

    async def main():
        running = invoker((SimpleNamespace(id="greet", fn=fn), None, 0.0))
        with EventLoopMonitor(asyncio.get_running_loop(), running, interval=0.01, threshold=0.05):
            await fn()

    asyncio.run(main())
    [text] = reports.texts
    assert text.startswith("The event loop is blocked for 0.05 seconds by greet (test_shutdown.py:")
    assert "all other handlers wait" in text


def test_loops_that_answer_are_not_reported(reports):
    async def main():
        running = invoker((SimpleNamespace(id="greet", fn=None), None, 0.0))
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        watch = EventLoopMonitor(loop, running, interval=0.001, threshold=10)
        answer = watch._on_response
        watch._on_response = lambda: (answer(), asked.set())
        with watch:
            await asked.wait()

    asyncio.run(main())
    assert reports.texts == []


def test_nothing_is_asked_while_no_handlers_run():
    class Silent:
        def call_soon_threadsafe(self, fn):
            raise AssertionError("the idle loop is woken")

    looked = threading.Event()

    class Running(dict):
        def __bool__(self):
            looked.set()
            return False

    with EventLoopMonitor(Silent(), SimpleNamespace(running=Running()), interval=0.001, threshold=0.001):
        assert looked.wait(30)


# Functions that are registered first are called last.
LEFT_OPEN = """
import atexit, pathlib

@atexit.register
def check():
    comm = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    assert "kopf-engine" not in comm, comm
    try:
        KopfCluster().__enter__()
    except RuntimeError as error:
        print(error)
    cluster.__exit__(None, None, None)
    print("closed")

from kopf.testing import Cluster as KopfCluster
cluster = KopfCluster()
cluster.__enter__()
cluster.api.get("namespaces", "default")
comm = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
assert "kopf-engine" in comm, comm
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_no_thread_of_the_engine_is_left_when_the_process_ends():
    done = subprocess.run([sys.executable, "-c", LEFT_OPEN], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    exiting, closed = done.stdout.splitlines()
    assert exiting.startswith("The interpreter is exiting") and closed == "closed"


FORKED = """
import os, sys, warnings
from kopf.testing import Cluster

warnings.simplefilter("ignore", DeprecationWarning)  # forks with several threads
cluster = Cluster()
cluster.__enter__()
child = os.fork()
if not child:
    sys.exit(7)  # with the functions that are called at the exit
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
cluster.api.get("namespaces", "default")
print("well")
"""


def test_the_end_of_a_fork_leaves_the_engine_alone():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr


HANGING = """
import os, signal, threading, time
import kopf
from kopf.testing import Cluster

ready = threading.Event()

@kopf.on.startup()
def configure(settings, **_):
    settings.process.ultimate_exiting_timeout = 0.5

@kopf.on.cleanup()
def hang(**_):
    time.sleep(600)

def stop():
    ready.wait()
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=stop, daemon=True).start()
with Cluster() as cluster:
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
    kopf.run(clusterwide=True, standalone=True, ready_flag=ready, stop_flag=threading.Event())
"""


@pytest.mark.timeout(120)
def test_a_process_that_hangs_after_a_signal_is_killed_although_there_is_a_flag():
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=100)
    assert done.returncode == -signal.SIGKILL, done.stderr


def make_flags():
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    return [asyncio.Event(), threading.Event(), future, concurrent.futures.Future()]


def test_flags_are_raised_or_not():
    assert [is_raised(flag) for flag in make_flags()] == [False] * 4
    raised = make_flags()
    for flag in raised:
        raise_flag(flag)
    assert [is_raised(flag) for flag in raised] == [True] * 4
    assert not is_raised(None)
