"""The targets of the figures, and the figures that are computed from several workloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

Median = Callable[[str, str], float | None]
"""The median of a figure of a workload, if it was measured."""


class Target(NamedTuple):
    """At most that, and at most such parts of what the others need."""

    limit: float
    of_reference: float | None = None
    of_native: float | None = None


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
        Target(90, 0.33),
    ),
    Row("W1 idle memory", "MiB", figure(*IDLE), Target(26, 0.6)),
    Row("W2 start with 2,000 handled objects, CPU", "s", figure("W2", CPU), Target(0.16, 0.08, 0.45)),
    Row(
        "W2 CPU per object more",
        "µs",
        between(("W2L", CPU), ("W2", CPU), 1e6 / 3000),
        Target(30, 0.035, 0.2),
    ),
    Row(
        "W2 peak memory above idle",
        "MiB",
        between(("W2", "peak memory, MiB"), IDLE),
        Target(15, 0.2, 0.15),
    ),
    Row("W3 creation with a result, CPU", "ms", figure("W3", "CPU per object, ms"), Target(0.5, 0.09, 0.36)),
    Row("W3P the same with events, CPU", "ms", figure("W3P", "CPU per object, ms"), Target(0.65, 0.08, 0.45)),
    Row("W4 lone event, CPU", "µs", figure("W4", "CPU per event, µs"), Target(30, 0.085, 1.0)),
    Row("W5 update, CPU", "ms", figure("W5", "CPU per update, ms"), Target(0.35, 0.10, 0.4)),
    Row(
        "W5F update with a field's handler, CPU",
        "ms",
        figure("W5F", "CPU per update, ms"),
        Target(0.65, 0.08, 0.67),
    ),
    Row(
        "W6 handler's start beyond the round trip, p50",
        "ms",
        figure("W6", "start beyond the creation's round trip, p50, ms"),
        Target(0.3, 0.2, 0.15),
    ),
    Row("W7A timers, CPU per call", "µs", figure("W7A", "CPU per call, µs"), Target(10, 0.03, 0.75)),
    Row("W7A timers, lateness p99", "ms", figure("W7A", "lateness p99, ms"), Target(10, 0.03, 0.7)),
    Row("W7S timers in threads, CPU per call", "µs", figure("W7S", "CPU per call, µs"), Target(40, 0.08)),
    Row("W7D daemon, memory", "kB", figure("W7D", "memory for each, kB"), Target(10, 0.13, 0.18)),
    Row("W7D daemon, CPU to start", "ms", figure("W7D", "CPU to start each, ms"), Target(0.4, 0.1)),
    Row("W8S makespan ÷ ideal of 6 threads", "", figure("W8S", "makespan ÷ ideal"), Target(1.03, 0.87)),
    Row("growth: W2 per object, 1,000 → 100,000", "", growth("G100", "G10", 90_000), Target(1.15)),
    Row(
        "growth: W3 per additional object, 1,000 → 100,000",
        "",
        ratio(("G100", ADDITIONAL), ("G1", ADDITIONAL)),
        Target(1.15),
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

WRITES = "writes per object"
REQUESTS = {
    "W2": WRITES,
    "W3": WRITES,
    "W3P": WRITES,
    "W5": "writes per update",
    "W5F": "writes per update",
    "W6": WRITES,
    "W7D": WRITES,
}
"""Figures that show whether all contestants did the same work."""
