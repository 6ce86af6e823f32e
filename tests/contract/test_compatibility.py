"""The list of coverage: each section of the contract names tests, and each named test exists."""

import pathlib
import re
import tomllib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
COVERAGE = tomllib.loads((ROOT / "tests" / "contract" / "coverage.toml").read_text())
CLAIMS = ROOT / "tests" / "contract" / "parity"


def problem(test: str) -> str | None:
    """The error in the id of a test, `path::name`; None if it exists."""
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return f"{path} does not exist"
    if name and not re.search(rf"\b(def|fn) {re.escape(name)}\b", (ROOT / path).read_text()):
        return f"{path} has no {name}"
    if not name and path.endswith((".rs", ".py")):
        return f"{path}: which test of it?"
    return None


def unknown_claims() -> Iterator[str]:
    for entry in COVERAGE["surface"]:
        for file, names in entry.get("claims", {}).items():
            text = (CLAIMS / f"{file}.py").read_text()
            yield from (f"{file}: {name}" for name in names if f"def claim_{name}(" not in text)


def test_sections_are_listed_once() -> None:
    for kind in ("section", "surface"):
        ids = [entry["id"] for entry in COVERAGE[kind]]
        assert len(ids) == len(set(ids))


def test_each_section_has_a_test() -> None:
    assert [entry["id"] for entry in COVERAGE["section"] if not entry["tests"]] == []
    assert [it["id"] for it in COVERAGE["surface"] if not it.get("tests") and not it.get("claims")] == []


def test_each_named_test_exists() -> None:
    tests = [test for entry in COVERAGE["section"] for test in entry["tests"]]
    assert [found for test in tests if (found := problem(test))] == []
    files = [test for entry in COVERAGE["surface"] for test in entry.get("tests", [])]
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_each_named_claim_exists() -> None:
    assert list(unknown_claims()) == []


def test_planted_names_are_found() -> None:
    assert problem("tests/nowhere.py::test_it")
    assert problem("tests/contract/test_compatibility.py::test_it_is_not_there")
    assert problem("tests/contract/test_compatibility.py")
