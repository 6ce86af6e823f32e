"""Faults of connections and logins: silence, slow logins, hanging plugins, absurd waits."""

import time

from tests.faults.cases import case, changes, faulty, meanwhile, on
from tests.faults.fault_harness import Harness
from tests.faults.fault_proxy import Asked, FaultAction, rejection


@case("watches get no response")
def no_response(harness: Harness) -> None:
    meanwhile(harness, on("watch", doing=FaultAction(hang=True), times=4), 3, cut=True)


@case("all connections become silent")
def silent_connections(harness: Harness) -> None:
    harness.proxy.silence()
    changes(harness)
    time.sleep(1)
    harness.proxy.silence()
    harness.change("a", 3)


@case("connections are closed at their second request")
def closed_when_reused(harness: Harness) -> None:
    harness.proxy.closes_reused = True
    changes(harness)
    time.sleep(1)
    harness.change("a", 3)
    harness.wait(harness.is_converged)
    harness.proxy.closes_reused = False


@case("Retry-After of a day")
def absurd_wait(harness: Harness) -> None:
    doing = rejection(429, "TooManyRequests", {"Retry-After": "86400"})
    meanwhile(harness, on("watch", "patch", doing=doing, times=2), 1, cut=True)


def rejected_until_renewed(asked: Asked) -> FaultAction | None:
    return rejection(401, "Unauthorized") if asked.token == "first" else None


@case("401, and a login that takes longer than requests may")
def slow_login(harness: Harness) -> None:
    before = harness.operator_process.look()["logins"]
    harness.operator_process.order(login_seconds=5, token="second")
    with faulty(harness, rejected_until_renewed):
        harness.proxy.cut()
        changes(harness)
        harness.wait(harness.is_converged)
    logins = harness.operator_process.look()["logins"] - before
    harness.demands.append(("there is one login", lambda: logins == 1))


@case("401, and an exec plugin that hangs for 5 s", plugin=True)
def hanging_plugin(harness: Harness) -> None:
    assert harness.plugin is not None
    harness.plugin.set(token="second", seconds=5)
    with faulty(harness, rejected_until_renewed):
        harness.proxy.cut()
        changes(harness)
        harness.wait(harness.is_converged)
    runs = harness.plugin.runs
    harness.demands.append(("the plugin runs once per login", lambda: runs == 2))


@case("an exec plugin that hangs when the operator is stopped", plugin=True)
def stopped_with_plugin(harness: Harness) -> None:
    assert harness.plugin is not None
    harness.plugin.set(token="second", seconds=1000)
    with faulty(harness, rejected_until_renewed):
        harness.proxy.cut()
        harness.change("a", 2)
        harness.wait(lambda: harness.plugin is not None and harness.plugin.runs == 2)
        start = time.monotonic()
        harness.operator_process.stop()
        seconds = time.monotonic() - start
    harness.demands.append((f"it ends in time, not after {seconds:.1f} s", lambda: seconds < 15))
    harness.plugin.set(token="second", seconds=0)
    harness.operator_process.start()
    changes(harness)
