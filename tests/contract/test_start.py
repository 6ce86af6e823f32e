"""What an operator loads before it does anything: all that stays in memory, and costs time at each start."""

import json
import os
import pathlib
import subprocess
import sys

# The author's file is executed when all of ours is loaded.
OPERATOR = """
import gc, json, sys
from kopf._kits.deferring import Deferred
deferred = [name for name, module in sys.modules.items() if type(module) is Deferred]
loaded = [name for name in sys.modules if name not in deferred]
print(json.dumps([loaded, deferred, gc.isenabled(), gc.get_freeze_count()]))
raise SystemExit
"""

# Whoever needs them loads them: commands for development, handlers of users, logins.
NOT_LOADED = {
    "kopf._kits.dev",
    "kopf._kits.operators",
    "kopf._kits.pytest_plugin",
    "kopf._kits.runner",
    "kopf._kits.webhooks",
    "kopf._objects.credentials",
    "kopf.testing",
    "_ssl",
    "aiohttp",
    "asyncio.sslproto",
    "base64",
    "email",
    "hashlib",
    "http",
    "ipaddress",
    "kubernetes",
    "multiprocessing",
    "pykube",
    "pytest",
    "random",
    "ssl",
    "unittest",
    "urllib",
    "yaml",
}
DEFERRED = {"asyncio.sslproto", "kopf._objects.credentials", "ssl"}
# As counted with CPython 3.11, and some more for other versions.
MOST = 205


def started(folder: pathlib.Path, *options: str, **environment: str) -> list:
    """What the author's file sees."""
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


def at_rest() -> set[str]:
    """The modules of the interpreter itself."""
    code = "import json, sys; print(json.dumps(list(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(run.stdout))


def test_an_operator_loads_no_more_than_it_needs(tmp_path: pathlib.Path) -> None:
    loaded, deferred, *_ = started(tmp_path)
    modules = set(loaded) - at_rest()
    assert {"asyncio", "kopf._kopf", "kopf._runtime.serving"} <= modules
    assert not modules & NOT_LOADED
    assert set(deferred) == DEFERRED
    assert len(modules) <= MOST, f"{len(modules)} modules: {' '.join(sorted(modules))}"


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
