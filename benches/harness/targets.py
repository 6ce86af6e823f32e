"""The targets of the figures, and the figures that are computed from several workloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

Median = Callable[[str, str], float | None]
"""The median of a figure of a workload, if it was measured."""


class Target(NamedTuple):
    """At most that, and at most such parts of what the others need; None if there is no such target."""

    limit: float | None = None
    kopf: float | None = None
    kube_rs: float | None = None
    controller_runtime: float | None = None


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    title: str
    unit: str
    value: Callable[[Median], float | None]
    target: Target


def figure(workload: str, key: str, scale: float = 1.0) -> Callable[[Median], float | None]:
    """As it is."""

    def value(median: Median) -> float | None:
        found = median(workload, key)
        return None if found is None else found * scale

    return value


def between(
    more: tuple[str, str], less: tuple[str, str], scale: float = 1.0
) -> Callable[[Median], float | None]:
    """The difference of two figures."""

    def value(median: Median) -> float | None:
        high, low = median(*more), median(*less)
        return None if high is None or low is None else (high - low) * scale

    return value


def ratio(upper: tuple[str, str], lower: tuple[str, str]) -> Callable[[Median], float | None]:
    """One figure by another."""

    def value(median: Median) -> float | None:
        above, below = median(*upper), median(*lower)
        return None if above is None or not below else above / below

    return value


def growth(more: str, less: str, count: int) -> Callable[[Median], float | None]:
    """The CPU of a start for each object that one workload of growth has more than another, by what it is in
    the lower range."""
    upper = between((more, CPU), (less, CPU), 1 / count)
    lower = between((less, CPU), ("G1", CPU), 1 / 9_000)

    def value(median: Median) -> float | None:
        above, below = upper(median), lower(median)
        return None if above is None or not below else above / below

    return value


def either(
    first: Callable[[Median], float | None], second: Callable[[Median], float | None]
) -> Callable[[Median], float | None]:
    """The second figure for contestants without the first."""

    def value(median: Median) -> float | None:
        found = first(median)
        return second(median) if found is None else found

    return value


CPU = "CPU, s"
CALL = "CPU per call, µs"
REST = "idle memory, MiB"
ADDITIONAL = "CPU per additional object, ms"
IDLE = ("W1", "idle memory, MiB")

ROWS = [
    Row("W1 `import kopf`, CPU", "ms", figure("W1", "import kopf: CPU, ms"), Target(30, 0.10)),
    Row("W1 `kopf --version`, CPU", "ms", figure("W1", "kopf --version: CPU, ms"), Target(35, 0.11)),
    Row(
        "W1 start to the first handler, CPU",
        "ms",
        figure("W1", "start to first handler: CPU, ms"),
        Target(100, 0.37),
    ),
    Row("W1 idle private memory", "MiB", figure(*IDLE), Target(None, 0.5)),
    Row("W2 start with 2,000 handled objects, CPU", "s", figure("W2", CPU), Target(None, 0.08, 0.5)),
    Row(
        "W2 CPU per object more",
        "µs",
        between(("W2L", CPU), ("W2", CPU), 1e6 / 3000),
        Target(30),
    ),
    Row(
        "W2 peak private memory above idle",
        "MiB",
        between(("W2", "peak memory, MiB"), IDLE),
        Target(15),
    ),
    Row("W3 creation with a result, CPU", "ms", figure("W3", "CPU per object, ms"), Target(None, 0.08, 0.45)),
    Row("W3P the same with events, CPU", "ms", figure("W3P", "CPU per object, ms"), Target(None, 0.08, 0.45)),
    Row("W4 lone event, CPU", "µs", figure("W4", "CPU per event, µs"), Target(None, 0.18, 1.25)),
    Row("W5 update, CPU", "ms", figure("W5", "CPU per update, ms"), Target(None, 0.10, 0.7)),
    Row(
        "W5F update with a field's handler, CPU",
        "ms",
        figure("W5F", "CPU per update, ms"),
        Target(None, 0.12, 1.3),
    ),
    Row(
        "W6 handler's start beyond the round trip, p50",
        "ms",
        figure("W6", "start beyond the creation's round trip, p50, ms"),
        Target(None, 0.3, None, 1.0),
    ),
    Row("W7A timers, CPU per call", "µs", figure("W7A", "CPU per call, µs"), Target(None, 0.055, 1.6)),
    Row("W7A timers, lateness p99", "ms", figure("W7A", "lateness p99, ms"), Target(None, None, 1.0)),
    Row("W7S timers in threads, CPU per call", "µs", figure("W7S", "CPU per call, µs"), Target(None, 0.03)),
    Row("W7D daemon, private memory", "kB", figure("W7D", "memory for each, kB"), Target(10)),
    Row("W7D daemon, CPU to start", "ms", figure("W7D", "CPU to start each, ms"), Target(0.4, 0.1)),
    Row("W8S makespan ÷ ideal of 6 threads", "", figure("W8S", "makespan ÷ ideal"), Target(1.03, 0.87)),
    Row("R1 reconciler called every second, CPU per call", "µs", figure("R1", CALL), Target(None, None, 1.5)),
    Row("R1 ÷ W7A: compared with a timer", "", ratio(("R1", CALL), ("W7A", CALL)), Target(1.2)),
    Row("R1 lateness p99", "ms", figure("R1", "lateness p99, ms"), Target(None, None, 1.0)),
    Row("R2 start with 2,000 objects and children", "s", figure("R2", CPU), Target(None, None, 0.6)),
    Row(
        "R3 creation with a child and a condition, CPU",
        "ms",
        figure("R3", "CPU per object, ms"),
        Target(None, None, 0.9, 0.4),
    ),
    Row("R4 `api.get` in a coroutine", "µs", figure("R4", "get in a coroutine beyond it, µs"), Target(60)),
    Row("R4 `api.get` in a thread", "µs", figure("R4", "get in a thread beyond it, µs"), Target(40)),
    Row("R4 `cache.get`", "µs", figure("R4", "cache.get, µs"), Target(1)),
    Row("R4 `cache.select` of 100", "µs", figure("R4", "cache.select of 100, µs"), Target(60)),
    Row("growth: W2 per object, 1,000 → 100,000", "", growth("G100", "G10", 90_000), Target(1.1)),
    Row(
        "growth: W3 per additional object, 1,000 → 100,000",
        "",
        ratio(("G100", ADDITIONAL), ("G1", ADDITIONAL)),
        Target(1.1),
    ),
    Row(
        "memory per handled object at 100,000 (others: at 5,000)",
        "kB",
        either(
            between(("G100", REST), ("G1", REST), 1024 / 99_000),
            between(("W2L", REST), ("W2", REST), 1024 / 3_000),
        ),
        Target(1),
    ),
]

DECORATED = {
    "W2": ("CPU per object, µs", "µs"),
    "W3": ("CPU per object, ms", "ms"),
    "W3P": ("CPU per object, ms", "ms"),
    "W4": ("CPU per event, µs", "µs"),
    "W5": ("CPU per update, ms", "ms"),
    "W5F": ("CPU per update, ms", "ms"),
    "W7A": ("CPU per call, µs", "µs"),
    "W7S": ("CPU per call, µs", "µs"),
    "W7D": ("CPU to start each, ms", "ms"),
}
"""The figures that are compared between bare and decorated handlers and between Pythons, with units."""

DECORATED_LIMIT = 1.15
"""At most so much of what bare handlers need."""

WRITES = "writes per object"
REQUESTS = {
    "W2": WRITES,
    "W3": WRITES,
    "W3P": WRITES,
    "W5": "writes per update",
    "W5F": "writes per update",
    "W6": WRITES,
    "W7D": WRITES,
    "R3": WRITES,
}
"""Figures that show whether all contestants did the same work."""
