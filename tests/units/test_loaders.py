"""Loading of files and modules with handlers."""

import sys

import pytest
from kopf._runtime import loaders

pytestmark = pytest.mark.contract("api 5.4")


@pytest.mark.contract("api 5.4")
def test_files_are_loaded_with_their_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_op.py").write_text("x = 5")
    (tmp_path / "op.py").write_text("import neighbour_of_op\nname, x = __name__, neighbour_of_op.x")
    path = str(tmp_path / "op.py")
    loaders.preload([path], ["json"])
    module = sys.modules.pop(f"__kopf_script_0__{path}")
    assert (module.name, module.x) == (f"__kopf_script_0__{path}", 5)
    with pytest.raises(ImportError, match="no module or loader"):
        loaders.preload([str(tmp_path / "op.txt")], [])


def test_a_missing_package_that_kopf_installs_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "pythonjsonlogger", None)
    (tmp_path / "op.py").write_text("import pythonjsonlogger")
    with pytest.raises(ModuleNotFoundError) as failure:
        loaders.preload([str(tmp_path / "op.py")], [])
    [note] = failure.value.__notes__
    assert "Kopf 1.45 installs python-json-logger, kopf-rs does not: add it to the requirements" in note
