"""The figures as Markdown: medians, ratios, and what was wanted. It must not know how they came about."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from harness.targets import ROWS, Median
from harness.workloads import WORKLOADS, Figures

Results = Mapping[str, Mapping[str, Sequence[Figures]]]
"""Figures of the rounds by workloads and contestants."""


def number(value: float) -> str:
    """With three digits that say something."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def medians(results: Results, name: str) -> Median:
    """Those of one contestant."""

    def median(workload: str, key: str) -> float | None:
        values = [figures[key] for figures in results.get(workload, {}).get(name, []) if key in figures]
        return statistics.median(values) if values else None

    def derived(workload: str, key: str) -> float | None:
        if key != "CPU per object more, µs":
            return median(workload, key)
        more, less = median(workload, "CPU, s"), median("G2a", "CPU, s")
        count = {"G2b": 10_000, "G2c": 100_000}[workload] - 1000
        return None if more is None or less is None else (more - less) / count * 1e6

    return derived


def against_targets(results: Results, ours: str, others: Sequence[str]) -> str:
    """Each target with what was measured."""
    lines = [
        "| workload | " + " | ".join([*others, ours]) + " | target | |",
        "|---" * (len(others) + 4) + "|",
    ]
    for row in ROWS:
        value = row.value(medians(results, ours))
        if value is None:
            continue
        cells = []
        for name in others:
            other = row.value(medians(results, name))
            cells.append(
                "" if other is None else f"{number(other)} ({number(value / other)})" if other else "0"
            )
        verdict = "met" if value <= row.target.limit else "missed"
        unit = f" {row.unit}" if row.unit else ""
        lines.append(
            f"| {row.title} | "
            + " | ".join([*cells, f"**{number(value)}{unit}**"])
            + f" | ≤ {row.target.limit:g}{unit} | {verdict} |"
        )
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
