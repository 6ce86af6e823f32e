"""Tables of commands: texts in columns, within the width of a terminal."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence

WIDTH = 100
GAP = "  "
SHORTEST = 9
"""Columns are not cut below this width."""

UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = WIDTH
) -> list[str]:
    """The lines of a table with these columns.

    Too long texts are cut, and end with `…`. Without a width, nothing is cut.
    """
    return list(table_lines(header, rows, width=width))


def table_lines(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = WIDTH
) -> Iterator[str]:
    """The same line by line: nothing is kept of the rows, of which there can be many."""
    widths = [len(cell) for cell in header]
    for row in rows:
        widths = [max(known, len(_clean(cell))) for known, cell in zip(widths, row, strict=True)]
    if width is not None:
        _shrink(widths, width - len(GAP) * (len(widths) - 1))
    yield _line(header, widths)
    for row in rows:
        yield _line([_clean(cell) for cell in row], widths)


def _clean(cell: str) -> str:
    return " ".join(cell.split())


def _shrink(widths: list[int], available: int) -> None:
    # The last column has the longest texts, and its end matters least.
    last = len(widths) - 1
    excess = sum(widths) - available
    cut = min(excess, widths[last] - max(SHORTEST * 2, 1))
    widths[last] -= max(cut, 0)
    while sum(widths) > available and max(widths) > SHORTEST:
        widths[widths.index(max(widths))] -= 1


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (_cut(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True))
    return GAP.join(cells).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def parse_time(text: str) -> float:
    """A time of Kubernetes or of a progress record, in seconds since the epoch."""
    return datetime.datetime.fromisoformat(text).timestamp()


def format_age(seconds: float) -> str:
    """A duration in its largest unit, such as `42s` or `3d`."""
    return next((f"{int(seconds // size)}{unit}" for unit, size in UNITS if seconds >= size), "0s")


def count_words(counts: Mapping[str, int]) -> str:
    """The counts that are not zero, such as `1 handled, 2 failed`."""
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
