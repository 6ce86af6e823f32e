"""Secrets are in none of the outputs of an operator: neither in logs of any level and format, nor in
tracebacks, Events, probes, arguments, or files that are left.
"""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import kopf
import pytest
import yaml
from kopf.testing import ApiError, Cluster

from tests.security.planted_secrets import (
    BODY,
    HEADER,
    KEY,
    LATER,
    MARK,
    PASSWORD,
    PAYLOAD,
    PLUGIN,
    PROXY,
    TOKEN,
    found,
)

HERE = pathlib.Path(__file__).parent
WAYS = {
    "plain": [],
    "verbose": ["--verbose"],
    "debug": ["--debug", "--log-format=full"],
    "json": ["--debug", "--log-format=json"],
}


class Run:
    """A process with all its output."""

    def __init__(self, arguments: list[str], folder: pathlib.Path, environment: dict[str, str]) -> None:
        self.folder = folder
        (folder / "tmp").mkdir(exist_ok=True)
        self._log = folder / "log"
        known = {key: it for key, it in os.environ.items() if not key.startswith(("KOPF_", "KUBE"))}
        known |= {"TMPDIR": str(folder / "tmp"), "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kopf", *arguments],
                env=known | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, holds: Callable[[str], Any]) -> None:
        until = time.monotonic() + 60
        while not holds(self.log):
            assert time.monotonic() < until, self.log[-20_000:]
            threading.Event().wait(0.05)

    def outputs(self) -> str:
        """All that is seen of it from outside."""
        arguments = pathlib.Path(f"/proc/{self.process.pid}/cmdline")
        left = [path for path in (self.folder / "tmp").rglob("*") if path.is_file()]
        texts = [path.read_bytes().decode(errors="replace") for path in left]
        return "\n".join([self.log, arguments.read_text() if arguments.exists() else "", *texts])

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@contextlib.contextmanager
def running(arguments: list[str], folder: pathlib.Path, environment: dict[str, str]) -> Iterator[Run]:
    run = Run(arguments, folder, environment)
    try:
        yield run
    finally:
        run.process.kill()
        run.process.wait()


@pytest.fixture
def planted_cluster() -> Iterator[Cluster]:
    with Cluster(token=TOKEN.text) as cluster:
        yield cluster


@pytest.fixture
def authority(planted_cluster, tmp_path) -> pathlib.Path:
    config = yaml.safe_load(pathlib.Path(planted_cluster.kubeconfig).read_text())
    path: pathlib.Path = tmp_path / "ca.pem"
    path.write_bytes(base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]))
    return path


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def secret(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", WAYS)
def test_secrets_are_not_logged_on_any_failure(way, planted_cluster, authority, tmp_path):
    cluster, probes = planted_cluster, f"http://127.0.0.1:{free_port()}/healthz"
    options = {"server": cluster.url, "ca": str(authority), "port": free_port()}
    environment = {"CARELESS_OPTIONS": json.dumps(options)}
    arguments = [
        "run",
        "--standalone",
        "-A",
        *WAYS[way],
        f"--liveness={probes}",
        str(HERE / "leaky_operator.py"),
    ]
    with running(arguments, tmp_path, environment) as run:
        wait_until(lambda: is_guarded(cluster), run)
        cluster.create(secret("one", key=PAYLOAD.encoded))
        wait_until(lambda: "It was seen" in json.dumps(cluster.list("events")), run)
        wait_until(lambda: "more" in cluster.get("secrets", "one")["data"], run)
        cluster.patch("secrets", "one", {"data": {"key": LATER.encoded}})
        run.wait_for(lambda log: "sent again in" in log or "immutable" in log)
        with pytest.raises(ApiError):
            cluster.create(secret("odd", key=PAYLOAD.encoded))
        wait_until(lambda: get(probes) == 200, run)
        cluster.delete("secrets", "one")
        wait_until(lambda: all(it["metadata"]["name"] != "one" for it in cluster.list("secrets")), run)
        output = run.outputs() + json.dumps(cluster.list("events"))
        run.end()
        output += run.outputs()
    assert "this has" in output and "Traceback" in output, "the handlers have failed as they should"
    assert found(output) == []


@pytest.mark.timeout(120)
def test_webhook_requests_are_not_logged(planted_cluster, authority, tmp_path):
    options = {"server": planted_cluster.url, "ca": str(authority), "port": free_port(), "direct": True}
    arguments = ["run", "--standalone", "-A", "--debug", str(HERE / "leaky_operator.py")]
    with running(arguments, tmp_path, {"CARELESS_OPTIONS": json.dumps(options)}) as run:
        resource = {"group": "", "version": "v1", "resource": "secrets"}
        request = {
            "uid": "1",
            "resource": resource,
            "operation": "CREATE",
            "userInfo": {"username": BODY.text},
        }
        reviews: list[Any] = [
            {"request": {**request, "object": secret(name, key=BODY.encoded)}}
            for name in ("fine", "bad", "odd")
        ]
        reviews += [
            {"request": {"uid": BODY.text}},
            {"request": BODY.text},
            {"request": [BODY.text]},
            BODY.text,
        ]
        reviews += [{"request": {**request, "object": BODY.text}}]
        reviews += [{"request": {**request, "resource": {**resource, "resource": BODY.text}}}]
        bodies = [json.dumps(review) for review in reviews] + [
            BODY.text,
            "{" + BODY.text,
            "\udcff" + BODY.text,
        ]
        wait_until(lambda: post(options["port"], bodies[0]) == 200, run)
        codes = [post(options["port"], body) for body in bodies]
        output = run.outputs() + json.dumps(planted_cluster.list("events"))
        run.end()
    assert codes[0] == 200 and set(codes) - {200}, codes
    assert "an error in the review" in output
    assert found(output + run.outputs()) == []


@pytest.mark.timeout(120)
def test_unusable_credentials_are_not_logged(planted_cluster, authority, tmp_path):
    options = {"server": planted_cluster.url, "ca": str(authority), "port": free_port(), "proxied": True}
    arguments = ["run", "--standalone", "-A", "--debug", str(HERE / "leaky_operator.py")]
    with running(arguments, tmp_path, {"CARELESS_OPTIONS": json.dumps(options)}) as run:
        run.wait_for(lambda log: "cannot reach" in log)
        run.end()
    assert found(run.outputs()) == []


PEM = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n"
USERS = {
    "a plugin that fails": {"command": f"echo {PLUGIN.text}; echo {PLUGIN.text} >&2; exit 3"},
    "a plugin with other output": {"command": f"echo {PLUGIN.text}"},
    "a plugin with truncated output": {
        "command": f"""echo '{{"kind": "ExecCredential", "status": {{"token": "{PLUGIN.text}"'"""
    },
    "a plugin with a token that is rejected": {
        "command": f"""echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential","""
        f""" "status": {{"token": "{PLUGIN.text}"}}}}'"""
    },
    "a key that is none": {"client-key-data": base64.b64encode(PEM.format(KEY.encoded).encode()).decode()},
    "a key that is not even encoded": {"client-key-data": KEY.text},
    "a password that is rejected": {"username": "alice", "password": PASSWORD.text},
    "a token of the wrong type": {"token": [KEY.text]},
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", USERS)
def test_users_of_a_kubeconfig_are_not_logged(what, planted_cluster, tmp_path):
    config = yaml.safe_load(pathlib.Path(planted_cluster.kubeconfig).read_text())
    user = dict(USERS[what])
    if "command" in user:
        api = "client.authentication.k8s.io/v1"
        run_it = {
            "apiVersion": api,
            "command": "sh",
            "args": ["-c", user["command"]],
            "interactiveMode": "Never",
        }
        user = {"exec": run_it}
    if "client-key-data" in user:
        user["client-certificate-data"] = config["clusters"][0]["cluster"]["certificate-authority-data"]
    config["users"][0]["user"] = user
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    handlers = tmp_path / "handlers.py"
    handlers.write_text("import kopf\n@kopf.on.event('secrets')\ndef f(**_): pass\n")
    arguments = ["run", "--standalone", "-A", "--debug", str(handlers)]
    with running(arguments, tmp_path, {"KUBECONFIG": str(path)}) as run:
        run.process.wait(60)
    assert run.process.returncode == 1
    output = run.outputs()
    assert "login" in output or "authentication" in output
    assert found(output) == []


def test_secrets_are_not_in_representations():
    info = kopf.ConnectionInfo(
        server=f"https://alice:{PROXY.text}@example.com/",
        token=TOKEN.text,
        password=PASSWORD.text,
        private_key_data=KEY.text,
        proxy_url=f"http://alice:{PROXY.text}@127.0.0.1:1/",
    )
    assert info.token == TOKEN.text
    for shown in (repr(info), str(info), f"{info}", repr([info]), repr({"x": info})):
        assert MARK not in shown, shown
        assert "example.com" in shown


def test_nothing_is_quoted_of_a_kubeconfig_that_cannot_be_parsed(tmp_path, monkeypatch):
    path = tmp_path / "kubeconfig"
    path.write_text(f"users:\n- name: x\n  user: {{token: {TOKEN.text}]\n")
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(kopf.LoginError, match="line 3") as caught:
        kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())
    assert found("".join(traceback.format_exception(caught.value))) == []


# --- Steps.


def wait_until(holds: Callable[[], Any], run: Run) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until, run.log[-20_000:]
        assert run.process.poll() is None, run.log[-20_000:]
        threading.Event().wait(0.05)


def is_guarded(cluster: Cluster) -> bool:
    try:
        cluster.create(secret("bad", key=PAYLOAD.encoded))
    except ApiError as error:
        return "this one is bad" in str(error)
    # The webhook may have been configured meanwhile: then it also rejects the deletion.
    with contextlib.suppress(ApiError):
        cluster.delete("secrets", "bad")
    return False


def get(url: str) -> int:
    with contextlib.suppress(OSError):
        connection = http.client.HTTPConnection(url.split("/")[2], timeout=60)
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        assert found(response.read().decode()) == []
        connection.close()
        return response.status
    return 0


def post(port: int, body: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"Bearer {HEADER.text}", "X-Other": HEADER.encoded}
    try:
        connection.request("POST", "/review", body.encode(errors="surrogateescape"), headers)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()
