"""The order of the tests for several processes, with `--dist worksteal` of pytest-xdist.

Each process begins with an equal part of the tests. One that has finished takes tests from the end of another
part.
"""

import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTROL_PLANE = "control_plane"
# These tests take minutes, of which most is waiting.
FIRST = [
    "tests/real/test_idle_watches.py::test_bookmarks_keep_idle_watches_open",
    "tests/faults/test_faults.py::test_fault[many objects at the start, with changes going on]",
    "tests/installed/test_pages.py::test_the_testing_pages_after_the_installation",
    "tests/faults/test_faults.py::test_fault[Retry-After of a day]",
    "tests/behaviours/testkit/test_idleness.py::test_elsewhere_kinds_that_cannot_be_listed_are_not_awaited",
]
# The other tests of these files take longer than most.
LONGEST = [
    ROOT / "tests" / name
    for name in (
        "faults/test_faults.py",
        "faults/test_crashes.py",
        "faults/test_health.py",
        "installed/test_pages.py",
        "examples/test_cache.py",
        "docs/test_followed.py",
    )
]


def in_parts(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """The tests in this order: each process begins with one of the first tests, and ends with those on the
    real control plane.

    At the end, one of the first tests would keep one process busy for minutes, while the others have nothing
    to do. Each process has a separate control plane, which costs processor time from its first test on.
    """
    first = [item for name in FIRST for item in items if item.nodeid == name]
    chosen = set(first)
    others = spread([item for item in items if item not in chosen and not is_real(item)])
    real = spread([item for item in items if item not in chosen and is_real(item)])
    ordered: list[pytest.Item] = []
    for number in range(processes):
        left = processes - number
        size = (len(items) - len(ordered)) // left
        part = first[number::processes]
        last = min(len(real) // left, max(0, size - len(part)))
        count = max(0, size - len(part) - last)
        # The last part has the rest of both.
        if left == 1:
            count, last = len(others), len(real)
        ordered += part + others[:count] + real[:last]
        del others[:count], real[:last]
    return ordered


def is_real(item: pytest.Item) -> bool:
    """Whether the test needs the control plane of its process."""
    return CONTROL_PLANE in getattr(item, "fixturenames", ())


def spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """The longest tests evenly among the others. In a row, they would be left to one process at the end."""
    longest = [item for item in items if item.path in LONGEST]
    others = [item for item in items if item.path not in LONGEST]
    size = len(others) // len(longest) if longest else 0
    spread = []
    for number, item in enumerate(longest):
        spread += [item, *others[number * size : (number + 1) * size]]
    return spread + others[len(longest) * size :]
