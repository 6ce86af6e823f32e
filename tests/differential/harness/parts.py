"""Parts of the suite: a different one each day, and the most important scenarios in each of them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

# Where most regressions are found.
ALWAYS = ("lifecycle", "temporary_errors")
# The number of days until all scenarios have run. A part takes about a minute.
PARTS = 6


def today() -> int:
    """The part of this day."""
    return datetime.datetime.now(datetime.UTC).timetuple().tm_yday % PARTS


def choose(names: Sequence[str], part: int) -> list[str]:
    """The names of the scenarios in a part."""
    others = [name for name in sorted(names) if name not in ALWAYS]
    return [name for name in ALWAYS if name in names] + others[part % PARTS :: PARTS]
