"""The rotation of the differential suite: every scenario is included regularly, and some always."""

import importlib.util
import pathlib

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "differential_part.py"


def test_each_scenario_comes_around_and_the_main_ones_are_always_there() -> None:
    spec = importlib.util.spec_from_file_location("differential_part", SCRIPT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    names = [*script.ALWAYS, *(f"scenario-{number}" for number in range(32))]
    parts = [script.choose(names, day) for day in range(400, 400 + script.PARTS)]
    assert {name for part in parts for name in part} == set(names)
    assert all(set(script.ALWAYS) <= set(part) for part in parts)
    assert all(len(part) == len(set(part)) <= len(names) / 4 for part in parts)
