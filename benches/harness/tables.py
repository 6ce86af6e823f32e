"""The figures as Markdown tables: medians, ratios, and targets."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benches.harness.figures import Figures
from benches.harness.targets import DECORATED, DECORATED_LIMIT, REQUESTS, ROWS, Median
from benches.harness.workloads import WORKLOADS

Results = Mapping[str, Mapping[str, Sequence[Figures]]]
"""Figures of the rounds by workloads and contestants."""

PEERS = {"reference": "kopf", "kube-rs": "kube_rs", "controller-runtime": "controller_runtime"}
"""With whom ours is compared, if they take part: the fields of the targets by the contestants."""
BEHIND_DECORATOR = ", decorated"
"""The end of the name of a contestant whose handlers are behind a decorator."""
NEWEST = "ours, newest Python"
"""Ours in the newest Python."""
DASH = "-"


def number(value: float) -> str:
    """The number with three significant digits."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def medians(results: Results, name: str) -> Median:
    """Those of one contestant."""

    def median(workload: str, key: str) -> float | None:
        values = [figures[key] for figures in results.get(workload, {}).get(name, []) if key in figures]
        return statistics.median(values) if values else None

    return median


def against_targets(results: Results, ours: str, others: Sequence[str]) -> str:
    """Each target with what was measured."""
    peers = [name for name in PEERS if name in others]
    heads = ["workload", *others, ours, *(f"÷ {name}" for name in peers), "target", ""]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    missing = []
    for row in ROWS:
        value = row.value(medians(results, ours))
        if value is None:
            missing.append(row.title)
            continue
        unit = f" {row.unit}" if row.unit else ""
        figures = {name: row.value(medians(results, name)) for name in others}
        cells = [DASH if figure is None else f"{number(figure)}{unit}" for figure in figures.values()]
        most = row.target.limit
        is_checked = most is not None
        missed = [] if most is None or value <= most else [f"{number(value)}{unit}"]
        ratios = []
        for name in peers:
            limit = getattr(row.target, PEERS[name])
            cell, fits = against(value, figures[name], limit)
            ratios.append(cell)
            if fits is not None:
                is_checked = True
                missed += [] if fits else [f"÷ {name}"]
        verdict = f"missed: {', '.join(missed)}" if missed else "met" if is_checked else DASH
        cells = [row.title, *cells, f"**{number(value)}{unit}**", *ratios]
        lines.append(f"| {' | '.join([*cells, DASH if most is None else f'≤ {most:g}{unit}', verdict])} |")
    if missing:
        lines += ["", f"Not measured: {'; '.join(missing)}."]
    return "\n".join(lines) + "\n"


def against(value: float, other: float | None, limit: float | None) -> tuple[str, bool | None]:
    """The ratio of our figure to another one, with its target; and whether the target is met, if known."""
    # Differences can be below zero: of that, there are no parts.
    if other is None or other <= 0 or value < 0:
        return DASH, None if other is None or value >= 0 else True
    part = value / other
    if limit is None:
        return number(part), None
    return f"{number(part)} (≤ {limit:g})", part <= limit


def decorated(results: Results, names: Sequence[str]) -> str:
    """Compare bare and decorated handlers, for each contestant that was measured with both."""
    both = [name for name in names if f"{name}{BEHIND_DECORATOR}" in names]
    if not both:
        return ""
    heads = [head for name in both for head in (name, "decorated", "÷ bare")]
    lines = [f"| workload, CPU | {' | '.join(heads)} | target |", "|---" * (len(heads) + 2) + "|"]
    for workload, (key, unit) in DECORATED.items():
        cells = []
        for name in both:
            bare = medians(results, name)(workload, key)
            behind = medians(results, f"{name}{BEHIND_DECORATOR}")(workload, key)
            if bare and behind:
                cells += [f"{number(bare)} {unit}", f"{number(behind)} {unit}", number(behind / bare)]
            else:
                cells += [DASH] * 3
        if any(cell != DASH for cell in cells):
            lines.append(f"| {workload} | {' | '.join(cells)} | ours: ≤ {DECORATED_LIMIT:g} |")
    return "\n".join(lines) + "\n"


def pythons(results: Results, names: Sequence[str]) -> str:
    """Compare ours in the oldest and in the newest Python."""
    if NEWEST not in names:
        return ""
    lines = ["| workload, CPU | ours | newest Python | ÷ ours |", "|---" * 4 + "|"]
    for workload, (key, unit) in DECORATED.items():
        oldest, newest = (medians(results, name)(workload, key) for name in ("ours", NEWEST))
        if oldest and newest:
            cells = [f"{number(oldest)} {unit}", f"{number(newest)} {unit}", number(newest / oldest)]
            lines.append(f"| {workload} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def requests(results: Results, names: Sequence[str]) -> str:
    """How many writes each contestant has sent for the same work."""
    lines = [f"| writes per object | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for workload, key in REQUESTS.items():
        if workload in results:
            found = [medians(results, name)(workload, key) for name in names]
            cells = [DASH if figure is None else f"{figure:.2f}" for figure in found]
            lines.append(f"| {workload} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def in_full(results: Results) -> str:
    """Every figure, with its least and its greatest value."""
    lines = []
    for workload, by_name in results.items():
        names = list(by_name)
        title = (WORKLOADS[workload].__doc__ or "").removeprefix(f"{workload}. ")
        lines += [f"### {workload}. {title}", ""]
        lines += ["| figure | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        keys = dict.fromkeys(key for rounds in by_name.values() for figures in rounds for key in figures)
        for key in keys:
            cells = []
            for name in names:
                values = [figures[key] for figures in by_name[name] if key in figures]
                cells.append(
                    f"{number(statistics.median(values))} ({number(min(values))}..{number(max(values))})"
                    if values
                    else ""
                )
            lines.append(f"| {key} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)
