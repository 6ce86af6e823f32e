"""The behaviours of Kopf 1.45 that the environment or the settings restore."""

from __future__ import annotations

import ast
import dataclasses
import pathlib

import kopf
import pytest
from kopf._intents import compatibility
from kopf._intents.compatibility import CURRENT, KOPF_1_45

PACKAGE = pathlib.Path(kopf.__file__).parent


@pytest.mark.parametrize(("version", "expected"), [("1.45", KOPF_1_45), ("", CURRENT), ("1.44", CURRENT)])
def test_the_environment_applies_to_the_process_and_its_operators(monkeypatch, version, expected):
    monkeypatch.setenv("KOPF_COMPAT", version)
    assert compatibility.of_environment() is expected
    assert compatibility.of_settings(kopf.OperatorSettings()) is expected


def test_settings_apply_to_one_operator(monkeypatch):
    monkeypatch.delenv("KOPF_COMPAT", raising=False)
    settings = kopf.OperatorSettings()
    settings.process.compat = "1.45"
    assert compatibility.of_settings(settings) is KOPF_1_45
    assert compatibility.of_settings(kopf.OperatorSettings()) is CURRENT
    assert compatibility.of_environment() is CURRENT
    monkeypatch.setenv("KOPF_COMPAT", "1.45")
    settings.process.compat = None
    assert compatibility.of_settings(settings) is CURRENT


def test_all_behaviours_are_off_or_all_are_restored():
    assert len(dataclasses.fields(CURRENT)) > 10
    assert not any(dataclasses.astuple(CURRENT))
    assert all(dataclasses.astuple(KOPF_1_45))
    with pytest.raises(dataclasses.FrozenInstanceError):
        CURRENT.starts_silently = True


def read_attributes_and_texts(path: pathlib.Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_one_module_reads_the_variable_and_each_flag_is_used():
    used = {
        path.relative_to(PACKAGE).as_posix(): read_attributes_and_texts(path)
        for path in PACKAGE.rglob("*.py")
    }
    assert len(used) > 100
    assert [path for path, words in used.items() if "KOPF_COMPAT" in words] == ["_intents/compatibility.py"]
    # The serialization only checks the version.
    readers = {path for path, words in used.items() if "compat" in words}
    assert readers == {"_intents/compatibility.py", "_intents/serialization.py"}
    others = set().union(*(words for path, words in used.items() if path != "_intents/compatibility.py"))
    assert {field.name for field in dataclasses.fields(CURRENT)} <= others
