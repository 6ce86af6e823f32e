"""Groups the differences between recorded and new answers by cause."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import Any


class Report:
    """Counts of equal answers per family, and differences per cause."""

    def __init__(self) -> None:
        self.equal: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = defaultdict(list)

    def add(self, family: str, label: str, real: dict[str, Any], ours: dict[str, Any]) -> None:
        """Compare the answers of one request."""
        self.total[family] += 1
        if real == ours:
            self.equal[family] += 1
            return
        cause = cause_of(real, ours)
        self.causes[cause] += 1
        self.examples[cause].append(f"[{family}] {label}")

    def table(self) -> list[str]:
        """Lines with the equal answers per family."""
        width = max(map(len, self.total), default=0)
        lines = []
        for family in sorted(self.total):
            equal, total = self.equal[family], self.total[family]
            lines.append(f"{family:{width}} {equal:6} of {total:6} {100 * equal / total:6.1f} %")
        equal, total = self.equal.total(), self.total.total()
        return [*lines, f"{'all':{width}} {equal:6} of {total:6} {100 * equal / max(total, 1):6.1f} %"]

    def is_enough(self, overall: float, of_family: float) -> bool:
        """Whether the percentages of equal answers are at least these, over all and in each family."""
        families = all(self.equal[f] * 100 >= total * of_family for f, total in self.total.items())
        return families and self.equal.total() * 100 >= self.total.total() * overall


def cause_of(real: dict[str, Any], ours: dict[str, Any]) -> str:
    """What differs, without names, indices and values."""
    if real["code"] != ours["code"]:
        return (
            f"code {real['code']} / {ours['code']}: {_general(_summary(real))} / {_general(_summary(ours))}"
        )
    if real["warnings"] != ours["warnings"]:
        return f"warnings {_general(str(real['warnings'][:1]))} / {_general(str(ours['warnings'][:1]))}"
    if real["code"] >= 400:
        return f"error: {_general(_summary(real))} / {_general(_summary(ours))}"
    return f"body {_general(difference(real['body'], ours['body'], ''))}"


def _summary(answer: dict[str, Any]) -> str:
    body = answer["body"]
    if answer["code"] < 400 or not isinstance(body, dict):
        return ""
    causes = (body.get("details") or {}).get("causes")
    if causes:
        return "; ".join(sorted(f"{c.get('field')}: {c.get('message')}" for c in causes)[:3])
    return str(body.get("message"))


def _general(text: str) -> str:
    text = re.sub(r"\[\d+\]", "[]", text)
    text = re.sub(r"Invalid value: .*?: (?=[a-zA-Z])", "Invalid value: …: ", text)
    return re.sub(r'(?<=Duplicate value: ).*|(?<=Unsupported value: )"[^"]*"', "…", text)[:260]


def difference(real: Any, ours: Any, path: str) -> str:
    """The first place where two values differ."""
    if isinstance(real, dict) and isinstance(ours, dict):
        for key in sorted(real.keys() | ours.keys()):
            if key not in ours:
                return f"{path}.{key} missing: {_cut(real[key])}"
            if key not in real:
                return f"{path}.{key} extra: {_cut(ours[key])}"
            if real[key] != ours[key]:
                return difference(real[key], ours[key], f"{path}.{key}")
    if isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        for i, (a, b) in enumerate(zip(real, ours, strict=True)):
            if a != b:
                return difference(a, b, f"{path}[{i}]")
    return f"{path}: {_cut(real)} / {_cut(ours)}"


def _cut(value: Any) -> str:
    return json.dumps(value)[:80]
