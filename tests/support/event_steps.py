"""The steps of one event, as ARCHITECTURE.md lists them."""

import pathlib
import re
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECTION = "## The steps of one event\n"


@dataclass(frozen=True)
class Step:
    """A row of the tables."""

    number: int
    path: pathlib.Path
    functions: tuple[str, ...]


def section() -> str:
    """The text of the section."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    return text[text.index(SECTION) :].split("\n## ")[0]


def steps() -> tuple[list[Step], list[Step]]:
    """The steps to the handler, and those from there to the request."""
    first, second = section().split("From the handler to the PATCH:")
    return _rows(first), _rows(second)


def _rows(text: str) -> list[Step]:
    rows = re.findall(r"^\| (\d+) \| `([^`]+)` \| ([^|]+) \|", text, re.MULTILINE)
    return [Step(int(number), _path(name), tuple(re.findall(r"`(\w+)`", it))) for number, name, it in rows]


def _path(name: str) -> pathlib.Path:
    return ROOT / ("python/kopf" if name.endswith(".py") else "rust") / name
