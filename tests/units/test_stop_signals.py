"""Signals that stop `kopf dev` and `kopf cluster`."""

import json
import signal
import subprocess
import sys

import pytest
from kopf._cli import dev
from kopf._cli.dev import StopSignals

# Signals arrive all the time, also while the wait holds the locks that it may have.
OFTEN = """
import signal
from kopf._cli.dev import StopSignals

stop = StopSignals()
signal.signal(signal.SIGALRM, stop.receive)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for _ in range(2000):
    stop.wait()
    stop.signals.clear()
signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.timeout(60)
def test_signals_are_received_at_any_moment_of_a_wait():
    done = subprocess.run([sys.executable, "-c", OFTEN], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr


def test_a_signal_ends_all_waits():
    stop = StopSignals()
    assert not stop.wait(0)
    stop.receive(signal.SIGINT, None)
    assert stop.wait()
    assert stop.wait(0)


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGHUP])
def test_ignored_signals_stay_ignored(ignored):
    inherited = signal.signal(ignored, signal.SIG_IGN)
    try:
        with dev._stop_signals() as stop:
            signal.raise_signal(ignored)
            signal.raise_signal(signal.SIGTERM)
            assert stop.signals == [signal.SIGTERM]
        assert signal.getsignal(ignored) is signal.SIG_IGN
    finally:
        signal.signal(ignored, inherited)


class SlowlyStopping:
    """An operator that stops after as many polls as there are interrupts."""

    def __init__(self, interrupts):
        self.interrupts, self.sent = interrupts, []

    def poll(self):
        return None

    def send_signal(self, signum):
        self.sent.append(signum)

    def wait(self, timeout):
        if not self.interrupts:
            return 0
        self.interrupts.pop(0)()
        raise subprocess.TimeoutExpired("operator", timeout)


@pytest.mark.parametrize(
    ("count", "sent"), [(0, [signal.SIGTERM]), (1, [signal.SIGTERM]), (2, [signal.SIGTERM, signal.SIGINT])]
)
def test_the_first_interrupt_during_a_restart_lets_the_operator_stop_gracefully(count, sent):
    stop = StopSignals()
    operator = SlowlyStopping([lambda: stop.receive(signal.SIGINT, None)] * count)
    assert dev._stop_operator(operator, stop) == 0
    assert operator.sent == sent


def test_the_second_interrupt_is_passed_on():
    stop = StopSignals()
    stop.receive(signal.SIGINT, None)
    operator = SlowlyStopping([lambda: None, lambda: stop.receive(signal.SIGINT, None)])
    assert dev._stop_operator(operator, stop) == 0
    assert operator.sent == [signal.SIGTERM, signal.SIGINT]


class InterruptedCluster:
    """A cluster; the command is interrupted while the first object is applied."""

    version = 1

    def __init__(self, stop):
        self.stop, self.applied = stop, []

    def apply(self, body):
        self.applied.append(body["metadata"]["name"])
        self.stop.receive(signal.SIGINT, None)
        return [body]


def test_after_an_interrupt_no_more_objects_are_applied(tmp_path):
    stop = StopSignals()
    cluster = InterruptedCluster(stop)
    objects = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}} for name in ("a", "b")]
    (tmp_path / "objects.json").write_text(json.dumps({"kind": "List", "items": objects}))
    manifests = dev._Manifests(cluster, stop)
    manifests.apply(tmp_path / "objects.json")
    assert cluster.applied == ["a"]
    manifests.apply(tmp_path / "objects.json")
    assert cluster.applied == ["a"]
