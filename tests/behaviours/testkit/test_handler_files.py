"""Files with handlers that import other modules with handlers: each operator has all of them."""

import importlib
import sys

import pytest
from kopf.testing import Operator


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def handler(name):
    return f"import kopf\n@kopf.on.create('configmaps', id='{name}')\ndef fn(**_):\n    pass\n"


def ids(operator):
    handlers = operator.registry._changing.get_all_handlers()
    return [it.id for it in handlers]


def test_each_operator_has_the_handlers_of_imported_modules(cluster, tmp_path):
    for folder in ("a", "b"):
        write(tmp_path / folder, {"main.py": "import neighbour_x", "neighbour_x.py": handler(folder)})
    found = []
    for folder in ("a", "a", "b"):
        with Operator(cluster, tmp_path / folder / "main.py") as operator:
            found += ids(operator)
    assert found == ["a", "a", "b"]
    assert "neighbour_x" not in sys.modules


def test_operators_at_the_same_time_have_the_handlers_of_imported_modules(cluster, tmp_path):
    write(tmp_path, {"main.py": "import neighbour_x", "neighbour_x.py": handler("one")})
    with Operator(cluster, tmp_path / "main.py") as first, Operator(cluster, tmp_path / "main.py") as second:
        own = sys.modules["neighbour_x"]
        assert ids(first) == ids(second) == ["one"]
        first.stop()
        assert sys.modules["neighbour_x"] is own
    assert "neighbour_x" not in sys.modules


def test_modules_in_packages_are_executed_again(cluster, tmp_path, monkeypatch):
    files = {"__init__.py": "", "children.py": handler("one")}
    write(tmp_path / "package_of_main", files)
    write(tmp_path, {"main.py": "from package_of_main import children"})
    monkeypatch.syspath_prepend(str(tmp_path))
    package = importlib.import_module("package_of_main")
    try:
        for _ in range(2):
            with Operator(cluster, tmp_path / "main.py") as operator:
                assert ids(operator) == ["one"]
                assert package.children is sys.modules["package_of_main.children"]
        assert sys.modules["package_of_main"] is package
    finally:
        del sys.modules["package_of_main"]


def test_modules_that_the_test_has_imported_stay(cluster, tmp_path, monkeypatch):
    main = "import limits_of_main\nfound = limits_of_main.LIMIT"
    write(tmp_path, {"main.py": main, "limits_of_main.py": "LIMIT = 1"})
    monkeypatch.syspath_prepend(str(tmp_path))
    limits = importlib.import_module("limits_of_main")
    monkeypatch.setattr(limits, "LIMIT", 2)
    try:
        for _ in range(2):
            with Operator(cluster, tmp_path / "main.py"):
                script = sys.modules[f"__kopf_script_0__{tmp_path}/main.py"]
                assert script.found == 2
        assert sys.modules["limits_of_main"] is limits
    finally:
        del sys.modules["limits_of_main"]


def test_nothing_stays_of_files_that_cannot_be_loaded(cluster, tmp_path):
    write(tmp_path, {"main.py": "import neighbour_x\nraise ValueError('Oops.')", "neighbour_x.py": ""})
    before = list(sys.path)
    with pytest.raises(ValueError, match="Oops"):
        Operator(cluster, tmp_path / "main.py").start()
    assert sys.path == before
    assert "neighbour_x" not in sys.modules


CHANGED_PATH = """
import os, sys
sys.path.append(os.path.dirname(__file__))
sys.path.append("/appended-by-main")
sys.path.remove("/removed-by-main")
"""


@pytest.mark.parametrize("is_known", [False, True])
def test_files_that_change_the_import_path_leave_the_rest_of_it(cluster, tmp_path, monkeypatch, is_known):
    write(tmp_path, {"main.py": CHANGED_PATH})
    monkeypatch.setattr(sys, "path", [*sys.path, "/removed-by-main"])
    if is_known:
        sys.path.insert(0, str(tmp_path))
    before = list(sys.path)
    with Operator(cluster, tmp_path / "main.py"):
        assert sys.path.count("/appended-by-main") == 1
    assert sys.path == before


def test_operators_whose_files_append_folders_leave_the_import_path_in_any_order(
    cluster, tmp_path, monkeypatch
):
    write(tmp_path, {"main.py": "import sys\nsys.path.append('/appended-by-main')", "other.py": ""})
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = list(sys.path)
    first, second = Operator(cluster, tmp_path / "main.py"), Operator(cluster, tmp_path / "other.py")
    first.start()
    second.start()
    first.stop()
    assert "/appended-by-main" not in sys.path
    second.stop()
    assert sys.path == before
