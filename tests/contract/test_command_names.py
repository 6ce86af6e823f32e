"""Each command of the core and each task of the engine has one name in Rust, the bindings and Python."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINDINGS = ROOT / "rust/kopf-py/src"
RUNTIME = ROOT / "python/kopf/_runtime"

ENUMS = [
    ("rust/kopf-py/src/bridge.rs", "HostItem", 2),
    ("rust/kopf-engine/src/host/mod.rs", "HostTask", 20),
    ("rust/kopf-core/src/activation/mod.rs", "Command", 8),
]
"""The enums of what Python executes, with the least number of their variants."""


def variants(path: str, enum: str) -> list[str]:
    """The names of the variants of an enum."""
    pattern = rf"^pub(?:\(crate\))? enum {enum} \{{\n(.*?)^\}}"
    [body] = re.findall(pattern, (ROOT / path).read_text(), re.DOTALL | re.MULTILINE)
    return re.findall(r"^    ([A-Z]\w*)\b", body, re.MULTILINE)


def classes(folder: pathlib.Path) -> tuple[set[str], list[str]]:
    """The names of the Python classes in Rust, and those whose Python name is another one."""
    names, renamed = set(), []
    for path in sorted(folder.rglob("*.rs")):
        for options, name in re.findall(
            r"#\[pyclass\(([^)]*)\)\]\n(?:#\[.*\n|///.*\n)*(?:pub(?:\(\w+\))? )?(?:struct|enum) (\w+)",
            path.read_text(),
        ):
            names.add(name)
            if re.search(r"\bname *=", options):
                renamed.append(name)
    return names, renamed


def table_keys(folder: pathlib.Path) -> set[str]:
    """The names of the classes by which tables of functions are indexed in Python."""
    keys: list[ast.expr | None] = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                keys += node.keys
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                keys.append(node.slice)
    names = {key.attr for key in keys if isinstance(key, ast.Attribute)}
    return names | {key.id for key in keys if isinstance(key, ast.Name)}


def test_classes_have_one_name_in_rust_and_python():
    names, renamed = classes(BINDINGS)
    assert len(names) > 50
    assert renamed == []


@pytest.mark.parametrize(("path", "enum", "count"), ENUMS)
def test_commands_have_one_name_in_the_engine_the_bindings_and_python(path, enum, count):
    expected = set(variants(path, enum)) - {"Task"}  # the variant of all tasks
    assert len(expected) >= count
    names, _ = classes(BINDINGS)
    assert expected - names == set()
    assert expected - table_keys(RUNTIME) == set()


def test_a_planted_second_name_is_found(tmp_path):
    attribute = '#[pyclass(frozen, name = "Object", module = "m")]'
    (tmp_path / "views.rs").write_text(f"{attribute}\n#[derive(Debug)]\npub(crate) struct ObjectView {{}}\n")
    assert classes(tmp_path) == ({"ObjectView"}, ["ObjectView"])


def test_a_planted_table_is_found(tmp_path):
    (tmp_path / "tables.py").write_text("table = {bridge.Login: f, Probe: g}\ntable[bridge.Log] = h\n")
    assert table_keys(tmp_path) == {"Login", "Probe", "Log"}
