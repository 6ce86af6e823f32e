"""Faults of connections and logins: silence, slow logins, hanging plugins, absurd waits."""

import time

from interposer import Asked, Doing, refusal
from rows import changes, faulty, meanwhile, on, row
from theatre import Theatre


@row("watches get no response")
def no_response(theatre: Theatre) -> None:
    meanwhile(theatre, on("watch", doing=Doing(hang=True), times=4), 3, cut=True)


@row("all connections die silently")
def silent_connections(theatre: Theatre) -> None:
    theatre.proxy.silence()
    changes(theatre)
    time.sleep(1)
    theatre.proxy.silence()
    theatre.change("a", 3)


@row("connections are closed at their second request")
def closed_when_reused(theatre: Theatre) -> None:
    theatre.proxy.closes_reused = True
    changes(theatre)
    time.sleep(1)
    theatre.change("a", 3)
    theatre.wait(theatre.is_converged)
    theatre.proxy.closes_reused = False


@row("Retry-After of a day", converge=90)
def absurd_wait(theatre: Theatre) -> None:
    doing = refusal(429, "TooManyRequests", {"Retry-After": "86400"})
    meanwhile(theatre, on("watch", "patch", doing=doing, times=2), 1, cut=True)


def rejected_until_renewed(asked: Asked) -> Doing | None:
    return refusal(401, "Unauthorized") if asked.token == "first" else None


@row("401, and a login that takes longer than requests may", converge=20)
def slow_login(theatre: Theatre) -> None:
    before = theatre.troupe.look()["logins"]
    theatre.troupe.order(login_seconds=5, token="second")
    with faulty(theatre, rejected_until_renewed):
        theatre.proxy.cut()
        changes(theatre)
        theatre.wait(theatre.is_converged, 20)
    logins = theatre.troupe.look()["logins"] - before
    theatre.demands.append(("there is one login", lambda: logins == 1))


@row("401, and an exec plugin that hangs for 5 s", plugin=True, converge=20)
def hanging_plugin(theatre: Theatre) -> None:
    assert theatre.plugin is not None
    theatre.plugin.set(token="second", seconds=5)
    with faulty(theatre, rejected_until_renewed):
        theatre.proxy.cut()
        changes(theatre)
        theatre.wait(theatre.is_converged, 20)
    runs = theatre.plugin.runs
    theatre.demands.append(("the plugin runs once per login", lambda: runs == 2))


@row("an exec plugin that hangs when the operator is stopped", plugin=True)
def stopped_with_plugin(theatre: Theatre) -> None:
    assert theatre.plugin is not None
    theatre.plugin.set(token="second", seconds=1000)
    with faulty(theatre, rejected_until_renewed):
        theatre.proxy.cut()
        theatre.change("a", 2)
        theatre.wait(lambda: theatre.plugin is not None and theatre.plugin.runs == 2)
        start = time.monotonic()
        theatre.troupe.stop()
        seconds = time.monotonic() - start
    theatre.demands.append((f"it ends in time, not after {seconds:.1f} s", lambda: seconds < 15))
    theatre.plugin.set(token="second", seconds=0)
    theatre.troupe.start()
    changes(theatre)
