"""Mistakes of users, and the output of the command line: one row per mistake.

No row may print a traceback, except for errors in the author's code; and then with the author's frames only.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
from typing import NamedTuple

import kopf
import pytest
import yaml

from tests.support.crds import PEERINGS

pytestmark = pytest.mark.kopf_embedded_only
OURS = str(pathlib.Path(kopf.__file__).parent)
GOOD = """
import kopf

@kopf.on.create("configmaps")
def greet(**_):
    pass
"""


class Row(NamedTuple):
    """A mistake of an author: the command, and its expected output."""

    name: str
    printed: list[str]
    code: int = 1
    args: tuple[str, ...] = ("run", "-A", "handlers.py")
    source: str = GOOD
    traced: bool = False
    environment: tuple[tuple[str, str], ...] = ()


ALONE = [
    Row(
        "no credentials",
        [
            "Error: Ran out of valid credentials. No login handler has returned any. Set KUBECONFIG",
            "Looked for: $KUBECONFIG (not set), ~/.kube/config (does not exist)",
            "Without a cluster, try: kopf dev FILE",
        ],
    ),
    Row(
        "no such kubeconfig",
        [
            "Error: The kubeconfig cannot be used: failed to read /nope: No such file",
            "$KUBECONFIG is '/nope'",
        ],
        environment=(("KUBECONFIG", "/nope"),),
    ),
    Row(
        "a broken kubeconfig",
        ["Error: The kubeconfig broken.yaml cannot be parsed at line 1", "'broken.yaml'"],
        environment=(("KUBECONFIG", "broken.yaml"),),
    ),
    Row("no such file", ["Error: ", "There is no file 'nope.py'."], 2, ("run", "-A", "nope.py")),
    Row("a directory", ["'.' is a directory: name its files, or use -m for a package."], 2, ("run", ".")),
    Row("not a Python file", ["'broken.yaml' is not a Python file."], 2, ("run", "broken.yaml")),
    Row("no files", ["Error: Name the files with the handlers, or their modules (-m)."], 2, ("run", "-A")),
    # Usage errors come before any logging, so they are text with every log format.
    Row(
        "a JSON log",
        ["Usage: kopf run", "Error: No such option '--x'."],
        2,
        ("run", "--log-format=json", "--x"),
    ),
    Row("no such module", ["Error: There is no module 'nope.x'", "PYTHONPATH"], 1, ("run", "-m", "nope.x")),
    Row(
        "a syntax error",
        ['handlers.py", line 1', "SyntaxError: ", "Error: Cannot load handlers.py: SyntaxError: "],
        source="def x(:",
    ),
    Row(
        "a failing import",
        ["import nope", "Error: Cannot load handlers.py: ModuleNotFoundError: No module named 'nope'"],
        source="import nope",
        traced=True,
    ),
    Row(
        "a relative import",
        [
            "Error: Cannot load src/package/handlers.py: it uses relative imports",
            "PYTHONPATH=src kopf run -m package.handlers",
        ],
        args=("run", "-A", "src/package/handlers.py"),
        traced=True,
    ),
    Row(
        "a wrong liveness endpoint",
        ["Error: ", "'localhost:8080' is not a URL such as http://0.0.0.0:8080/healthz"],
        2,
        ("run", "-A", "-L", "localhost:8080", "handlers.py"),
    ),
    Row(
        "a wrong status address",
        ["Error: ", "'8080' is not an address such as 0.0.0.0:8080"],
        2,
        ("run", "-A", "--status-address", "8080", "handlers.py"),
    ),
    Row(
        "both scopes",
        ["Error: Either --namespace or --all-namespaces can be used, not both."],
        2,
        ("run", "-A", "-n", "x", "handlers.py"),
    ),
    Row(
        "both scopes of a pause",
        ["Error: Either --namespace or --all-namespaces can be used, not both."],
        2,
        ("freeze", "-A", "-n", "x", "-P", "x", "-t", "10"),
    ),
    Row(
        "a decorator without arguments",
        ["Error: Cannot load handlers.py: TypeError: @kopf.on.create needs arguments: @kopf.on.create('"],
        source="import kopf\n@kopf.on.create\ndef greet(spec, **_):\n    pass\n",
        traced=True,
    ),
    Row(
        "a decorator without parentheses",
        ["The decorator needs parentheses: @kopf.on.startup()"],
        source="import kopf\n@kopf.on.startup\ndef greet(**_):\n    pass\n",
        traced=True,
    ),
    Row(
        "an unknown option of a decorator",
        ["create() got an unexpected keyword argument 'retry'; did you mean 'retries'?"],
        source="import kopf\n@kopf.on.create('x', retry=1)\ndef greet(**_):\n    pass\n",
        traced=True,
    ),
    Row(
        "a startup handler that fails on purpose",
        [
            "Activity 'connect' failed permanently: no database\n",
            "Error: The startup handler 'connect' failed for good: PermanentError: no database. "
            "The operator has not started.",
        ],
        source="import kopf\n@kopf.on.startup()\ndef connect(**_):\n"
        "    raise kopf.PermanentError('no database')\n",
    ),
    Row(
        "a startup handler with an exception",
        ["in connect\n", "Error: The startup handler 'connect' failed for good: KeyError: 'x'. The"],
        source="import kopf\n@kopf.on.startup(retries=1)\ndef connect(**_):\n    {}['x']\n",
        traced=True,
    ),
    Row(
        "no admission server",
        [
            "Error: Admission handlers exist, but no admission server/tunnel is configured in "
            "`settings.admission.server`. Set it in a startup handler"
        ],
        source="import kopf\n@kopf.on.validate('configmaps')\ndef check(**_):\n    pass\n",
    ),
]


def environment(home: pathlib.Path, **more: str) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "KOPF_COMPAT")}
    return {**known, "HOME": str(home), "COLUMNS": "200", **more}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "broken.yaml").write_text("a: [")
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "handlers.py").write_text("from .neighbour import x")
    return tmp_path


def check(row: Row, output: str) -> None:
    unwrapped = re.sub(r"\s*\n\s+", " ", output) if row.code == 2 else output
    for text in row.printed:
        assert text in unwrapped, output
    assert OURS not in output, f"frames of Kopf are shown:\n{output}"
    assert "uvloop" not in output and "docs.kopf.dev" not in output, output
    assert output.count("Traceback") == row.traced, output


@pytest.mark.parametrize("row", ALONE, ids=[row.name for row in ALONE])
def test_mistakes_without_a_cluster(row, folder):
    (folder / "handlers.py").write_text(row.source)
    run = subprocess.run(
        [sys.executable, "-m", "kopf", *row.args],
        cwd=folder,
        env=environment(folder, **dict(row.environment)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    check(row, run.stdout + run.stderr)
    assert run.returncode == row.code


def test_the_whole_traceback_comes_with_debug(folder):
    (folder / "handlers.py").write_text("import nope")
    args = [sys.executable, "-m", "kopf", "run", "-A", "--debug", "handlers.py"]
    run = subprocess.run(
        args, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=60
    )
    assert OURS in run.stderr and run.stderr.endswith(
        "Cannot load handlers.py: ModuleNotFoundError: No module named 'nope'\n"
    )
    assert run.returncode == 1


def test_errors_of_loading_end_with_the_exception_in_kopf_1_45(folder):
    (folder / "handlers.py").write_text("import nope")
    args = [sys.executable, "-m", "kopf", "run", "-A", "handlers.py"]
    env = environment(folder, KOPF_COMPAT="1.45")
    run = subprocess.run(args, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert run.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'nope'"
    assert run.returncode == 1


@pytest.mark.parametrize("source, is_traced", [(ALONE[-3].source, False), ("import nope", True)])
def test_crashes_are_lines_of_json_too(folder, source, is_traced):
    (folder / "handlers.py").write_text(source)
    args = [sys.executable, "-m", "kopf", "run", "-A", "--log-format", "json", "handlers.py"]
    run = subprocess.run(
        args, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=60
    )
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert lines[-1]["severity"] == "fatal"
    assert ("exc_info" in lines[-1]) == is_traced
    assert run.returncode == 1


def test_a_port_in_use(folder):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        args = [sys.executable, "-m", "kopf", "cluster", "--port", port]
        run = subprocess.run(
            args, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=60
        )
    assert f"cannot listen on port {port}" in run.stderr and "another --port" in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert run.returncode == 1


def run_in(cluster, folder, *args, **more):
    return subprocess.run(
        [sys.executable, "-m", "kopf", *args],
        cwd=folder,
        env=environment(folder, **{"KUBECONFIG": str(cluster.kubeconfig), **more}),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_wrong_token(kopf_cluster, folder):
    text = kopf_cluster.kubeconfig.read_text()
    (folder / "config").write_text(text.replace(kopf_cluster.connection.token, "wrong"))
    (folder / "handlers.py").write_text(GOOD)
    run = run_in(kopf_cluster, folder, "run", "-A", "handlers.py", KUBECONFIG=str(folder / "config"))
    printed = [
        f"Error: Ran out of valid credentials. The API server {kopf_cluster.url}",
        "rejects the credentials from login_with_kubeconfig (401 Unauthorized): they are wrong or have",
    ]
    check(Row("wrong token", printed), run.stderr)
    assert run.returncode == 1


# Each run gives another token.
PLUGIN = """#!/bin/sh
cd "$(dirname "$0")"
printf 'run\\n' >> plugin.runs
printf '%s' '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
printf '%s' '"status": {"token": "wrong-'$(wc -l < plugin.runs)'"}}'
"""
LOGIN = """
import kopf

@kopf.on.login()
def log_in(settings, **_):
    with open("plugin.runs", "a") as file:
        file.write("run\\n")
    with open("plugin.runs") as file:
        token = f"wrong-{len(file.readlines())}"
    return kopf.ConnectionInfo(server="SERVER", insecure=True, token=token)
"""


@pytest.mark.parametrize("key", ["login_with_kubeconfig", "log_in"])
def test_new_wrong_tokens_at_each_login(kopf_cluster, folder, key):
    config = yaml.safe_load(kopf_cluster.kubeconfig.read_text())
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    for user in config["users"]:
        user["user"] = {"exec": {**plugin, "command": str(folder / "plugin")}}
    (folder / "config").write_text(yaml.safe_dump(config))
    (folder / "plugin").write_text(PLUGIN)
    (folder / "plugin").chmod(0o755)
    login = LOGIN.replace("SERVER", kopf_cluster.url) if key == "log_in" else ""
    (folder / "handlers.py").write_text(GOOD + login)
    run = run_in(kopf_cluster, folder, "run", "-A", "handlers.py", KUBECONFIG=str(folder / "config"))
    rejected = f"The API server {kopf_cluster.url} rejects the credentials from {key} (401 Unauthorized)"
    assert f"Error: Ran out of valid credentials. {rejected}: they are wrong" in run.stderr
    warnings = re.findall(
        re.escape(rejected) + r"\. The credentials are read again in (\S+) seconds\.", run.stderr
    )
    assert warnings == ["0.5", "1"]
    assert (folder / "plugin.runs").read_text().splitlines() == ["run"] * 4
    assert "Traceback" not in run.stderr
    assert run.returncode == 1


def test_a_pause_without_peerings_and_without_the_object(kopf_cluster, folder):
    args = ("freeze", "-A", "-P", "nosuch", "-t", "10")
    run = run_in(kopf_cluster, folder, *args)
    printed = [
        "Error: Cannot find the peering resource for [clusterkopfpeerings.v1.kopf.dev",
        "Apply the CRDs of peerings to the cluster first",
    ]
    check(Row("no CRDs", printed), run.stderr)
    assert run.returncode == 1
    kopf_cluster.apply(PEERINGS)
    run = run_in(kopf_cluster, folder, *args)
    check(Row("no object", ['Error: There is no peering object "nosuch"', "Create it first"]), run.stderr)
    assert run.returncode == 1


def test_a_liveness_port_in_use(kopf_cluster, folder):
    (folder / "handlers.py").write_text(GOOD)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/healthz"
        run = run_in(kopf_cluster, folder, "run", "-A", "-L", url, "handlers.py")
    check(Row("port", ["Error: Cannot serve the health status at 127.0.0.1:", "in use"]), run.stderr)
    assert run.returncode == 1


WARNED = [
    ("# Nothing.", ["No handlers are declared in handlers.py: the operator has nothing to do."]),
    (
        "import kopf\n@kopf.on.create('configmaps')\ndef greet(nmae, **_):\n    pass\n",
        [
            "greet() (handlers.py:2) needs the argument 'nmae', which Kopf does not pass to it; "
            "did you mean 'name'?"
        ],
    ),
    (
        "import kopf\n@kopf.on.create('configmaps')\ndef greet(name):\n    pass\n",
        ["greet() (handlers.py:2) must accept more arguments than it names: add **_ to them."],
    ),
    (
        "import kopf\n@kopf.on.create('configmaps')\ndef one(**_):\n    pass\n"
        "@kopf.on.create('configmaps', id='one')\ndef two(**_):\n    pass\n",
        ["one() (handlers.py:2) and two() (handlers.py:5) have the same id 'one' for the same objects"],
    ),
    (
        "import kopf\n@kopf.on.startup()\ndef set_up(settings, **_):\n    settings.posting.enable = False\n",
        [
            "handlers.py:4: UserWarning: settings.posting has no 'enable', and nothing reads it; "
            "did you mean 'enabled'?"
        ],
    ),
]


@pytest.mark.parametrize("source, printed", WARNED, ids=["empty", "argument", "rest", "id", "setting"])
def test_mistakes_that_stop_nothing_are_warned_of(kopf_cluster, folder, source, printed):
    (folder / "handlers.py").write_text(source)
    process = subprocess.Popen(
        [sys.executable, "-m", "kopf", "run", "-A", "handlers.py"],
        cwd=folder,
        env=environment(folder, KUBECONFIG=str(kopf_cluster.kubeconfig)),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if "Initial authentication has finished" in line:
            break
    process.send_signal(signal.SIGTERM)
    seen += process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 0, seen
    for text in printed:
        assert text in seen
