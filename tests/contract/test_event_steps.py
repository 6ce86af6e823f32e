"""The steps of one event in ARCHITECTURE.md are those of the code: files, functions, numbers."""

import re

from tests.support.event_steps import Step, section, steps


def functions_in(text: str) -> set[str]:
    """The names of the functions in Rust or Python."""
    return set(re.findall(r"\b(?:fn|def) (\w+)", text))


def returns(rows: list[Step], seen: set[str]) -> int:
    """The number of steps in files that an earlier step has visited."""
    count = 0
    for row in rows:
        count += str(row.path) in seen
        seen.add(str(row.path))
    return count


def test_all_files_and_functions_exist():
    rows = [row for part in steps() for row in part]
    assert len(rows) > 20
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    missing = [
        (row.number, sorted(set(row.functions) - functions_in(row.path.read_text())))
        for row in rows
        if not row.functions or set(row.functions) - functions_in(row.path.read_text())
    ]
    assert missing == []


def test_the_text_has_the_numbers_of_the_tables():
    to_handler, to_request = steps()
    seen: set[str] = set()
    first = [len(to_handler), returns(to_handler, seen)]
    counted = [*first, len(to_request), returns(to_request, seen), len(seen)]
    text = " ".join(section().split("From the bytes")[0].split())
    numbers = re.search(
        r"there are (\d+) steps, (\d+) of them .* there are (\d+) more, (\d+) of them .* in (\d+) files", text
    )
    assert numbers is not None
    assert [int(number) for number in numbers.groups()] == counted
