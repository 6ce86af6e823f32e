"""The verdict on a scenario: unified diffs between the recordings of both Kopfs."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection
from typing import Any

from .normalize import Normalizer
from .scenario import Scenario

# Differences in these sections are warnings by default.
LENIENT = ("requests", "logs")
MAX_DIFF_LINES = 120
# How many more wake-up patches are accepted. Their number depends on timings; a busy loop would make many.
TOUCH_SLACK = 5
WIDTH = 110

Recording = dict[str, Any]


class Verdict:
    """The differences of one scenario, by section."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors: dict[str, list[str]] = {}
        self.warnings: dict[str, list[str]] = {}
        self.seconds: list[float] = [0, 0]

    @property
    def passed(self) -> bool:
        return not self.errors

    def as_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.name,
            "passed": self.passed,
            "errors": self.errors,
            "warnings": self.warnings,
            "seconds": self.seconds,
        }


def compare(
    scenario: Scenario, reference: Recording, candidate: Recording, strict: Collection[str] = ()
) -> Verdict:
    """Compare the recordings; differences in `strict` sections are errors even if usually lenient."""
    verdict = Verdict(scenario.name)
    verdict.seconds = [reference.get("seconds", 0), candidate.get("seconds", 0)]
    if reference["failure"]:
        verdict.errors["Kopf 1.45 failed"] = [reference["failure"]]
    if "names" not in reference or "names" not in candidate:
        verdict.errors["no recording"] = [str(candidate["failure"])]
        return verdict
    sides = [Normalizer(scenario, recording) for recording in (reference, candidate)]
    old_sections, new_sections = (side.sections() for side in sides)
    for section, old in old_sections.items():
        if section in scenario.skipped:
            continue
        if lines := _differences(section, old, new_sections[section]):
            is_lenient = section in LENIENT and section not in strict
            (verdict.warnings if is_lenient else verdict.errors)[section] = lines
    if "writes" not in scenario.skipped:
        counts = [side.request_counts() for side in sides]
        if lines := excess(scenario, *counts):
            verdict.errors["number of writes"] = lines
    if lines := mistimed(scenario, reference["gaps"], candidate["gaps"]):
        verdict.errors["timings"] = lines
    return verdict


def _differences(section: str, old: Any, new: Any) -> list[str]:
    if old == new:
        return []
    if not isinstance(old, dict):
        return unified(section, old, new)
    return [
        line
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
        for line in unified(f"{section}/{key}", old.get(key), new.get(key))
    ]


def unified(name: str, old: Any, new: Any) -> list[str]:
    """The unified diff of two values, of a limited length."""
    names = f"reference/{name}", f"candidate/{name}"
    lines = list(difflib.unified_diff(as_lines(old), as_lines(new), *names, n=6, lineterm=""))
    if len(lines) > MAX_DIFF_LINES:
        lines[MAX_DIFF_LINES:] = [f"... and {len(lines) - MAX_DIFF_LINES} lines more"]
    return lines


def as_lines(value: Any, indent: str = "", head: str = "", tail: str = "") -> list[str]:
    """The value as lines of JSON; a short value stays on one line."""
    flat = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if len(indent) + len(head) + len(flat) <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return [f"{indent}{head}{flat}{tail}"]
    if isinstance(value, dict):
        opening, closing = "{}"
        items = [(f"{json.dumps(key, ensure_ascii=False)}: ", item) for key, item in sorted(value.items())]
    else:
        opening, closing = "[]"
        items = [("", item) for item in value]
    lines = [f"{indent}{head}{opening}"]
    for number, (key, item) in enumerate(items, 1):
        lines += as_lines(item, indent + " ", key, "," if number < len(items) else "")
    return [*lines, f"{indent}{closing}{tail}"]


def excess(scenario: Scenario, reference: dict[str, list[int]], candidate: dict[str, list[int]]) -> list[str]:
    """The objects to which the candidate writes more often than Kopf 1.45."""
    lines = []
    for target, (writes, touches) in sorted(candidate.items()):
        most, most_touches = reference.get(target, (0, 0))
        if writes > most + scenario.request_slack:
            lines.append(f"{target}: {writes} writes, at most {most} expected")
        if touches > most_touches + TOUCH_SLACK:
            lines.append(f"{target}: {touches} wake-up patches, at most {most_touches} expected")
    return lines


def mistimed(
    scenario: Scenario, reference: dict[str, list[float]], candidate: dict[str, list[float]]
) -> list[str]:
    """The handlers whose recorded gaps between calls differ by more than the tolerance."""
    lines = []
    for fn, gaps in reference.items():
        others = candidate.get(fn, [])
        if len(gaps) != len(others) or any(
            abs(gap - other) > scenario.tolerance for gap, other in zip(gaps, others, strict=True)
        ):
            lines.append(f"{fn}: seconds between calls are {others}, not {gaps}")
    return lines
