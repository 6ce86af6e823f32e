"""The login by the official client: without a kubeconfig, and with an exec plugin that hangs."""

import os
import pathlib

import pytest
import yaml

from tests.support.operators import Operator

# The libraries in the end: the interpreter's own kopf comes first.
LAUNCH = """
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module("kopf", run_name="__main__", alter_sys=True)
"""
HANDLERS = """
import kopf, {library}

@kopf.on.create("configmaps")
def create(**_):
    pass
"""


@pytest.fixture
def start(kopf_python, site, tmp_path):
    """Start `kopf run` without a cluster."""
    started = []

    def run(library="kubernetes", **variables):
        (tmp_path / "launch.py").write_text(LAUNCH)
        (tmp_path / "handlers.py").write_text(HANDLERS.format(library=library))
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CALLS_FILE": str(tmp_path / "calls")}
        command = [kopf_python, "launch.py", site, "run", "-A", "handlers.py"]
        started.append(Operator(command, tmp_path, env | variables))
        return started[-1]

    yield run
    for operator in started:
        operator.close()


@pytest.mark.parametrize(
    "named, looked",
    [
        (None, "$KUBECONFIG (not set), ~/.kube/config (does not exist)"),
        ("/nope", "$KUBECONFIG (/nope: does not exist)"),
    ],
)
def test_missing_credentials_are_reported_without_tracebacks(start, named, looked):
    run = start(**({"KUBECONFIG": named} if named else {}))
    assert run.wait_for_exit() == 1
    # The official client and pykube, which are both installed, have failed.
    assert run.log.count("failed with an exception and will ignore it: Cannot authenticate ") == 2
    assert "Traceback" not in run.log
    lines = run.log.splitlines()
    assert len(lines) <= 12
    assert lines[-1].startswith("Error: Ran out of valid credentials. No login handler has returned any.")
    assert f"Looked for: {looked}" in lines[-1]
    assert lines[-1].endswith("Without a cluster, try: kopf dev FILE")


def kubeconfig_with_plugin(folder: pathlib.Path, script: str) -> str:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", script],
        "interactiveMode": "Never",
    }
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": plugin}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def test_the_exit_does_not_wait_for_a_plugin_of_the_client(start, tmp_path):
    # The plugin ends when the test closes the pipe.
    os.mkfifo(tmp_path / "pipe")
    begun = f"""echo '{{"handler": "plugin"}}' >> {tmp_path}/calls"""
    path = kubeconfig_with_plugin(tmp_path, f"{begun}; exec cat {tmp_path}/pipe")
    run = start(KUBECONFIG=path)
    try:
        run.wait_for_call("plugin")
        assert run.stop() == 0
        assert "Activity 'login_via_client' is cancelled. Will escalate." in run.log
    finally:
        os.close(os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK))
