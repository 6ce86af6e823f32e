"""The modules that an operator imports at start-up: they take memory, and time at each start."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

# The author's file is executed when all of ours is loaded.
OPERATOR = """
import gc, json, sys
print(json.dumps([list(sys.modules), gc.isenabled(), gc.get_freeze_count()]))
raise SystemExit
"""

# Commands for development, test tools, logins and client libraries are imported only on use.
NOT_LOADED = {
    "kopf._cli.dev",
    "kopf._testing.operator",
    "kopf._testing.pytest_plugin",
    "kopf._kits.webhooks",
    "kopf._objects.apierrors",
    "kopf._intents.caching",
    "kopf._intents.caching_settings",
    "kopf._intents.health_settings",
    "kopf._intents.leadership_settings",
    "kopf._intents.reconciling",
    "kopf._intents.reconciling_serialization",
    "kopf._intents.reconciling_settings",
    "kopf._objects.conditions",
    "kopf._objects.refs",
    "kopf._intents.requeue",
    "kopf._runtime.election",
    "kopf._runtime.leadership",
    "kopf._runtime.reconciler_functions",
    "kopf._runtime.reconciling",
    "kopf._runtime.status",
    "kopf._runtime.triggers",
    "kopf._runtime.client",
    "kopf._runtime.client.api",
    "kopf.client",
    "kopf.testing",
    "aiohttp",
    "kubernetes",
    "pykube",
    "pytest",
    "yaml",
}


def started(folder: pathlib.Path, *options: str, **environment: str) -> list:
    """The modules that are imported before the author's file."""
    file = folder / "operator.py"
    file.write_text(OPERATOR)
    run = subprocess.run(
        [sys.executable, "-m", "kopf", "run", "-A", *options, str(file)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
        timeout=60,
    )
    return json.loads(run.stdout)


def test_an_operator_loads_no_more_than_it_needs(tmp_path: pathlib.Path) -> None:
    loaded, *_ = started(tmp_path)
    assert {"asyncio", "kopf._kopf", "kopf._runtime.task_dispatcher"} <= set(loaded)
    assert not NOT_LOADED & set(loaded)


@pytest.mark.parametrize(
    "args",
    [
        *[("--help",), ("run", "--help"), ("check", "-h"), ("init", "-h"), ("status", "-h")],
        *[("explain", "-h"), ("doctor", "-h")],
    ],
)
def test_help_loads_only_the_options(args: tuple[str, ...]) -> None:
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "kopf", *args],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
    assert {"click", "kopf._cli.commands"} <= loaded
    others = NOT_LOADED | {
        "asyncio",
        "json",
        "logging",
        "pathlib",
        "ssl",
        "tempfile",
        "tomllib",
        "kopf._kopf",
    }
    assert not others & loaded
    assert not [name for name in loaded if name.startswith(("kopf._runtime", "kopf._testing"))]


def test_an_author_may_switch_the_collector_off(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "operator.py"
    file.write_text(
        "import gc, kopf._runtime.operator as o\ngc.disable()\no.run = lambda **_: print(gc.isenabled())"
    )
    command = [sys.executable, "-m", "kopf", "run", "-A", str(file)]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == "False\n"


def test_garbage_is_collected_when_the_authors_code_begins(tmp_path: pathlib.Path) -> None:
    *_, enabled, frozen = started(tmp_path)
    assert enabled
    assert frozen > 10_000


@pytest.mark.parametrize(
    ("code", "expected"), [("", "10000"), ("gc.set_threshold(50)", "50"), ("gc.set_threshold(0)", "0")]
)
def test_an_author_may_decide_how_often_garbage_is_collected(
    tmp_path: pathlib.Path, code: str, expected: str
) -> None:
    file = tmp_path / "operator.py"
    file.write_text(
        f"import gc, kopf._runtime.operator as o\n{code}\no.run = lambda **_: print(gc.get_threshold()[0])"
    )
    command = [sys.executable, "-m", "kopf", "run", "-A", str(file)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert printed.strip() == expected
