"""Mistakes that show while an operator runs: one row per mistake, with what the operator logs."""

import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
from typing import NamedTuple

import kopf
import pytest

from tests.support.commands import Command
from tests.support.crds import PEERINGS

pytestmark = pytest.mark.kopf_embedded_only
OURS = str(pathlib.Path(kopf.__file__).parent)
GOOD = "import kopf\n@kopf.on.create('letters')\ndef greet(**_):\n    pass\n"
LETTERS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: letters.mistakes.example.com}
spec:
  group: mistakes.example.com
  scope: Namespaced
  names: {plural: letters, singular: letter, kind: Letter}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {text: {type: string}}}
            status: {type: object, properties: {known: {type: string}}}
---
apiVersion: mistakes.example.com/v1
kind: Letter
metadata: {name: one}
spec: {text: Hello}
"""


class Row(NamedTuple):
    """A mistake: the source of the operator, and lines of its log in their order, as patterns."""

    name: str
    source: str
    logged: list[str]
    args: tuple[str, ...] = ("-A",)
    manifest: str = ""


def handler(code: str, decorator: str = "@kopf.on.create('letters', backoff=1000)", kind: str = "def") -> str:
    return f"import datetime, threading, kopf\n{decorator}\n{kind} greet(spec, patch, **_):\n    {code}\n"


ROWS = [
    Row(
        "a misspelled kind",
        GOOD.replace("'letters'", "'letterss'"),
        [
            r"Unresolved resources cannot be served \(.*CRDs\): Selector\(any_name='letterss'\)",
            r"No resource 'letterss' for the handler 'greet': did you mean 'letters'\?",
        ],
    ),
    Row(
        "a missing key",
        handler("spec['titel']"),
        [
            r"Handler 'greet' failed with an exception and will try again in 1000 seconds: KeyError: 'titel'",
            r"^Traceback",
            r"""^  File ".*handlers\.py", line 4, in greet""",
            r"^KeyError: 'titel'",
        ],
    ),
    Row(
        "an assignment to the spec",
        handler("spec['text'] = 'Bye'"),
        [
            r"^TypeError: 'Spec' object does not support item assignment",
            r"^Handlers change the object by the patch: patch\.spec\[\.\.\.\] = value",
        ],
    ),
    Row(
        "an argument that is not passed",
        GOOD.replace("**_", "nmae, **_"),
        [
            r"greet\(\) \(handlers\.py:2\) needs the argument 'nmae'.*did you mean 'name'\?",
            r"Handler 'greet' failed with an exception .* missing 1 required positional argument: 'nmae'",
        ],
    ),
    Row(
        "a result that is not JSON",
        handler("return datetime.datetime.now()"),
        [r"Handler 'greet' has returned a result of type datetime.*is not JSON serializable\. Return"],
    ),
    Row(
        "a status that the schema drops",
        handler("patch.status['unknown'] = 1"),
        [
            r"Merge-patching finished with inconsistencies: .*The CRD's schema drops status\.unknown: "
            r"declare it or set x-kubernetes-preserve-unknown-fields\."
        ],
    ),
    Row(
        "progress in a status that the schema drops",
        GOOD
        + """
@kopf.on.create('letters')
def send(**_):
    pass

@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.progress_storage = kopf.StatusProgressStorage()
""",
        [
            r"Creation is processed: 2 succeeded; 0 failed\.",
            r"The API server does not store status\.kopf\.progress, where Kopf keeps its state: the schema "
            r"has no such field\. .* Set x-kubernetes-preserve-unknown-fields: true for the status in the "
            r"CRD, or store the state in annotations",
        ],
    ),
    Row(
        "a blocked event loop",
        handler("threading.Event().wait(7)", kind="async def"),
        [
            r"The event loop is blocked for 5 seconds by greet \(handlers\.py:4\): all other handlers wait\. "
            r"Use `def` instead of `async def` for the handler, or `asyncio\.to_thread\(\)`\."
        ],
    ),
    Row(
        "a peering without its CRD",
        GOOD,
        [
            r"Paused: the cluster has no resource clusterkopfpeerings.* Install its CRD, "
            r"or run with --standalone\."
        ],
        ("-A", "--peering", "nosuch"),
    ),
    Row(
        "a peering that does not exist",
        GOOD,
        [r'Paused: there is no ClusterKopfPeering "nosuch"\. Create it, or run with --standalone\.'],
        ("-A", "--peering", "nosuch"),
        PEERINGS,
    ),
    Row(
        "a namespace that does not exist",
        GOOD,
        [r"No namespace matches 'defautl' yet; did you mean 'default'\?"],
        ("-n", "defautl"),
    ),
    Row(
        "a namespace that does not exist, with a login handler",
        GOOD
        + """
@kopf.on.login()
def log_in(settings, **_):
    return kopf.login_with_kubeconfig(settings=settings)
""",
        [r"No namespace matches 'defautl' yet; did you mean 'default'\?"],
        ("-n", "defautl"),
    ),
    Row(
        "a namespace pattern that matches nothing",
        GOOD,
        [r"No namespace matches 'team-\*' yet\."],
        ("-n", "team-*"),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_mistakes_of_running_operators(kopf_cluster, tmp_path, row):
    kopf_cluster.apply(LETTERS)
    if row.manifest:
        kopf_cluster.apply(row.manifest)
    (tmp_path / "handlers.py").write_text(row.source)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOPF_")}
    environment["KUBECONFIG"] = str(kopf_cluster.kubeconfig)
    running = Command(tmp_path, "run", *row.args, "handlers.py", environment=environment)
    try:
        for pattern in row.logged:
            running.until(pattern)
        assert running.stop() == 0
    finally:
        running.close()
    log = "".join(running.seen)
    assert OURS not in log, f"frames of Kopf are shown:\n{log}"
    assert not re.search(r"docs\.kopf\.dev|uvloop", log)


def settings_of(kubeconfig):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOPF_")}
    return environment | {"KUBECONFIG": str(kubeconfig)}


FEW_ATTEMPTS = """
@kopf.on.startup()
def configure(settings, **_):
    settings.networking.error_backoffs = [0, 0]
"""


@pytest.fixture
def run_at(tmp_path):
    """Run an operator of a server at this address until it gives up; get the lines of its log."""

    def run(server):
        context = {"name": "home", "context": {"cluster": "c", "user": "u"}}
        config = {
            "current-context": "home",
            "contexts": [context],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "x"}}],
        }
        (tmp_path / "config").write_text(json.dumps(config))
        (tmp_path / "handlers.py").write_text(GOOD + FEW_ATTEMPTS)
        done = subprocess.run(
            [sys.executable, "-m", "kopf", "run", "-A", "handlers.py"],
            cwd=tmp_path,
            env=settings_of(tmp_path / "config"),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        return done.stderr.splitlines()

    return run


def attempts(lines):
    return re.findall(r"Request attempt (#\d/\d) failed", "\n".join(lines))


def test_a_server_that_cannot_be_reached(run_at, tmp_path):
    """Each attempt has one line, and the last line names the kubeconfig and its context."""
    lines = run_at("https://127.0.0.1:9")
    assert attempts(lines) == ["#1/3", "#2/3", "#3/3"]
    assert "#1/3 failed; will retry: GET https://127.0.0.1:9/" in "".join(lines)
    assert lines[-1].startswith("Error: Cannot reach https://127.0.0.1:9: ")
    assert lines[-1].endswith(
        f". The address comes from the context 'home' of the kubeconfig {tmp_path}/config. Check that this "
        "cluster is running, or choose another one with --context or --kubeconfig."
    )
    assert len(lines) <= 12, lines


class Failing(http.server.BaseHTTPRequestHandler):
    """Responds as a proxy without its server."""

    def do_GET(self):
        self.send_response(503)
        self.send_header("Content-Length", "20")
        self.end_headers()
        self.wfile.write(b"service unavailable\n")

    def log_message(self, *_):
        pass


def test_a_server_that_fails(run_at):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Failing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        lines = run_at(f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
        thread.join(30)
    assert attempts(lines) == ["#1/3", "#2/3", "#3/3"]
    assert re.fullmatch(
        r"Error: The API server has responded to GET /apis? with the status 503: service unavailable\. "
        r"Try again when the API server has recovered\.",
        lines[-1],
    )


def test_equal_priorities_in_a_peering(kopf_cluster, tmp_path):
    kopf_cluster.apply(LETTERS)
    kopf_cluster.apply(PEERINGS)
    peering = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "both"}}
    kopf_cluster.create(peering)
    (tmp_path / "handlers.py").write_text(GOOD)
    args = ("run", "-A", "--peering", "both", "--priority", "5", "handlers.py")
    environment = settings_of(kopf_cluster.kubeconfig)
    operators = [Command(tmp_path, *args, environment=environment) for _ in range(2)]
    try:
        for operator in operators:
            operator.until(r"Possibly conflicting operators with the same priority: ")
            operator.until(r"None of these operators handles objects\. Give them different priorities")
    finally:
        for operator in operators:
            operator.close()
