"""The figures as Markdown tables: medians, ratios, and targets."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from harness.targets import REQUESTS, ROWS, Median
from harness.workloads import WORKLOADS, Figures

Results = Mapping[str, Mapping[str, Sequence[Figures]]]
"""Figures of the rounds by workloads and contestants."""

REFERENCE, NATIVE = "reference", "kube-rs"
"""With whom ours is compared, if they take part."""
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
    peers = [name for name in (REFERENCE, NATIVE) if name in others]
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
        missed = [] if value <= row.target.limit else [f"{number(value)}{unit}"]
        ratios = []
        for name in peers:
            limit = row.target.of_reference if name == REFERENCE else row.target.of_native
            cell, fits = against(value, figures[name], limit)
            ratios.append(cell)
            if not fits:
                missed.append(f"÷ {name}")
        verdict = f"missed: {', '.join(missed)}" if missed else "met"
        cells = [row.title, *cells, f"**{number(value)}{unit}**", *ratios, f"≤ {row.target.limit:g}{unit}"]
        lines.append(f"| {' | '.join([*cells, verdict])} |")
    if missing:
        lines += ["", f"Not measured: {'; '.join(missing)}."]
    return "\n".join(lines) + "\n"


def against(value: float, other: float | None, limit: float | None) -> tuple[str, bool]:
    """The ratio of our figure to another one, with its target; and whether the target is met."""
    # Differences can be below zero: of that, there are no parts.
    if other is None or other <= 0 or value < 0:
        return DASH, True
    part = value / other
    if limit is None:
        return number(part), True
    return f"{number(part)} (≤ {limit:g})", part <= limit


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
