"""Each section of the behaviour of Kopf 1.45.2 has tests: they are marked with it. See `sections.toml`."""

import ast
import pathlib
import re
import tomllib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
SECTIONS = tomllib.loads((ROOT / "tests" / "contract" / "sections.toml").read_text())
CLAIMS = ROOT / "tests" / "contract" / "parity"
# A comment before a test in Rust or a claim, or after the title of a scenario.
COMMENT = re.compile(r"^\s*(?://|#|<!--) contract: (.*?)(?: -->)?$", re.MULTILINE)


def marks(path: pathlib.Path) -> Iterator[str]:
    """The sections that the tests of a file are marked with."""
    text = path.read_text()
    if path.suffix == ".py" and path.parent != CLAIMS:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.contract":
                yield from (ast.literal_eval(argument) for argument in node.args)
    else:
        for comment in COMMENT.findall(text):
            yield from comment.split(", ")


def marked_files() -> Iterator[pathlib.Path]:
    yield from ROOT.glob("tests/**/*.py")
    yield from ROOT.glob("rust/**/*.rs")
    yield from ROOT.glob("rust/kopf-core/tests/scenarios/*.md")


def test_each_section_has_tests_and_each_mark_is_of_a_section() -> None:
    found = {section for path in marked_files() for section in marks(path)}
    assert found == set(SECTIONS)


def test_marks_are_found(tmp_path: pathlib.Path) -> None:
    files = {
        "test_it.py": '@pytest.mark.contract("engine 0.1", "api 4")\ndef test_it(): ...\n',
        "module.py": 'pytestmark = pytest.mark.contract("api 12")\n',
        "tests.rs": "// contract: engine 0.1, engine 1.2\n#[test]\nfn it() {}\n",
        "scenario.md": "# Title\n\n<!-- contract: observed 3 -->\n",
        "none.rs": "// The contract: none.\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert {name: list(marks(tmp_path / name)) for name in files} == {
        "test_it.py": ["engine 0.1", "api 4"],
        "module.py": ["api 12"],
        "tests.rs": ["engine 0.1", "engine 1.2"],
        "scenario.md": ["observed 3"],
        "none.rs": [],
    }
