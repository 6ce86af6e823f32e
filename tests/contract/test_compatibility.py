"""The table of compatibility: each section of the contract has a row, and each named test exists.

Owns the agreement of docs/compatibility.md with tests/contract/sections.txt and with the tests. Must not know
what the sections say: they are written down elsewhere.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
TABLE = ROOT / "docs" / "compatibility.md"
SECTIONS = ROOT / "tests" / "contract" / "sections.txt"

ROW = re.compile(r"^\| ((?:engine|api|observed) \S+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def rows() -> dict[str, list[str]]:
    """The tests of each section."""
    found = ROW.findall(TABLE.read_text())
    table = {section: re.findall(r"`([^`]+)`", tests) for section, _, tests in found}
    assert len(table) == len(found), "a section has two rows"
    return table


def problem(test: str) -> str | None:
    """What is wrong with the name of a test, as `path` or `path::name`."""
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return f"{path} does not exist"
    if name and not re.search(rf"\b(def|fn) {re.escape(name)}\b", (ROOT / path).read_text()):
        return f"{path} has no {name}"
    if not name and path.endswith((".rs", ".py")):
        return f"{path}: which test of it?"
    return None


def test_each_section_has_a_row_and_no_other_has() -> None:
    lines = SECTIONS.read_text().splitlines()
    sections = [line.split(":")[0] for line in lines if line and not line.startswith("#")]
    assert len(sections) > 150, "sections are lost"
    assert list(rows()) == sections


def test_each_named_test_exists() -> None:
    tests = [test for named in rows().values() for test in named]
    assert len(tests) > 250, "tests are lost"
    assert [found for test in tests if (found := problem(test))] == []


def test_each_section_has_a_test() -> None:
    assert [section for section, tests in rows().items() if not tests] == []


def test_planted_names_are_found() -> None:
    assert problem("tests/nowhere.py::test_it")
    assert problem("tests/contract/test_compatibility.py::test_it_is_not_there")
    assert problem("tests/contract/test_compatibility.py")
