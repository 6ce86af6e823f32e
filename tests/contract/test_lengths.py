"""`scripts/lengths.py` finds the files over the limits."""

import importlib.util
import pathlib
import types

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "lengths.py"


@pytest.fixture(scope="module")
def lengths() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("lengths", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_long_files_are_reported(lengths, tmp_path, capsys):
    for name, lines in {"rust/src/a.rs": 421, "rust/src/b.rs": 420, "tests/test_c.py": 601}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\n" * lines)
    assert lengths.main(["--root", str(tmp_path)]) == 1
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "2 too long, of 3 files.",
        "rust/src/a.rs has 421 lines, the limit is 420",
        "tests/test_c.py has 601 lines, the limit is 600",
    ]
    (tmp_path / "rust/src/a.rs").unlink()
    (tmp_path / "tests/test_c.py").unlink()
    assert lengths.main(["--root", str(tmp_path)]) == 0


def test_a_scan_of_nothing_fails(lengths, tmp_path):
    assert lengths.main(["--root", str(tmp_path)]) == 2
    assert len(list(lengths.lengths(lengths.ROOT))) > lengths.FEWEST_FILES
