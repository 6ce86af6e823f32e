"""What an operator loads before it does anything: all that stays in memory, and costs time at each start."""

import json
import subprocess
import sys

LOADS = """
import sys
before = set(sys.modules)
import kopf.cli, kopf.on
from kopf._kits.loops import proper_loop
from kopf._runtime import loading, logs, operator
import json
print(json.dumps(sorted(set(sys.modules) - before)))
"""

# Whoever needs them loads them: commands for development, handlers of users, logins.
NOT_LOADED = {
    "kopf._kits.dev",
    "kopf._kits.operators",
    "kopf._kits.pytest_plugin",
    "kopf._kits.runner",
    "kopf._kits.webhooks",
    "kopf.testing",
    "aiohttp",
    "email",
    "hashlib",
    "http",
    "ipaddress",
    "kubernetes",
    "multiprocessing",
    "pykube",
    "pytest",
    "random",
    "unittest",
    "urllib",
    "yaml",
}
# As counted with CPython 3.11 and click 8.5, and some more for other versions of both.
MOST = 235


def loaded() -> set[str]:
    """The modules that are loaded to run an operator, besides those of the interpreter."""
    run = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


def test_an_operator_loads_no_more_than_it_needs() -> None:
    modules = loaded()
    assert {"asyncio", "kopf._kopf", "kopf._runtime.serving"} <= modules
    assert not modules & NOT_LOADED
    assert len(modules) <= MOST, f"{len(modules)} modules: {' '.join(sorted(modules))}"
