"""`scripts/lengths.py` finds files and functions over the limits, in both languages."""

import importlib.util
import pathlib
import sys
import types

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "lengths.py"

RUST = """\
//! fn in_a_comment() {
fn short(of: [u8; 4]) -> char {
    let text = r#"{ "{" }"#;
    '{'
}
trait Signature {
    fn without_body(&self);
    fn quote() -> char { '\\'' }
}
fn outer() {
    fn inner() {}
    inner();
}
"""

PYTHON = '''\
class Class:
    def method(self):
        """A docstring,

        of three lines."""
        def inner(): ...
        return inner

async def function(): ...
'''


@pytest.fixture(scope="module")
def lengths() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("lengths", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["lengths"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_functions_are_measured(lengths):
    assert list(lengths.rust_functions(RUST)) == [("short", 2, 4), ("quote", 8, 1), ("outer", 10, 4)]
    assert sorted(lengths.python_functions(PYTHON)) == [("function", 9, 1), ("method", 2, 3)]


def test_long_files_and_functions_are_reported(lengths, tmp_path, capsys):
    folder = tmp_path / "rust" / "src"
    folder.mkdir(parents=True)
    (folder / "long.rs").write_text("fn long() {\n" + "    call();\n" * 79 + "}\n" + "\n" * 340)
    (folder / "short.rs").write_text("fn short() {\n" + "    call();\n" * 78 + "}\n" + "\n" * 340)
    assert lengths.main(["--root", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "rust/src/long.rs: the file has 421 lines, the limit is 420",
        "rust/src/long.rs:1: long() has 81 lines, the limit is 80",
        "2 too long, of 2 files and 2 functions.",
    ]
    (folder / "long.rs").unlink()
    assert lengths.main(["--root", str(tmp_path)]) == 0


def test_a_scan_of_nothing_fails(lengths, tmp_path):
    assert lengths.main(["--root", str(tmp_path)]) == 2
    files, functions = lengths.measure(lengths.ROOT, [])
    assert len(files) > lengths.FEWEST_FILES and len(functions) > lengths.FEWEST_FUNCTIONS
