"""`kopf cluster` and `kopf dev`, as a person at a terminal runs them."""

import contextlib
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.request

import pytest
from kopf.testing import Cluster

from tests.support.commands import WIDGETS

pytestmark = pytest.mark.kopf_embedded_only
FILE = pathlib.Path(__file__).with_name("handlers.py")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_cluster_is_there_until_it_is_stopped(command, tmp_path, signum):
    running = command("cluster", "--kubeconfig", "config")
    running.until("stop it with")
    with Cluster("kubeconfig", kubeconfig=tmp_path / "config") as cluster:
        assert cluster.find("namespaces", "default") is not None
    assert running.stop(signum) == 0
    assert not (tmp_path / "config").exists()


def test_a_cluster_is_at_the_port_that_was_asked_for(command, tmp_path):
    with Cluster() as cluster:
        port = cluster.url.rpartition(":")[2]
    running = command("cluster", "--kubeconfig", "config", "--port", port)
    assert f":{port};" in running.until("The cluster is at")
    running.until("stop it with|get namespaces")
    assert f":{port}" in (tmp_path / "config").read_text()
    assert running.stop() == 0


@pytest.mark.parametrize("args", [("dev", "handlers.py"), ("cluster",)])
def test_a_kubeconfig_of_another_cluster_is_not_replaced(command, tmp_path, args):
    text = "current-context: prod\nclusters: [{name: p, cluster: {server: https://prod}}]\n"
    (tmp_path / "config").write_text(text)
    running = command(*args, "--kubeconfig", "config")
    running.until("is not a kubeconfig that this command has written")
    assert running.process.wait(60) == 2
    assert (tmp_path / "config").read_text() == text


def test_a_kubeconfig_of_a_killed_run_is_replaced(command, tmp_path):
    with Cluster() as cluster:
        (tmp_path / "config").write_text(cluster.kubeconfig.read_text())
    running = command("cluster", "--kubeconfig", "config")
    running.until("stop it with|get namespaces")
    assert running.stop() == 0
    assert not (tmp_path / "config").exists()


def test_the_operator_of_development_has_no_options_of_kopf_run(command, tmp_path):
    (tmp_path / "prod").write_text("{}")
    (tmp_path / "handlers.py").write_text("import os\nprint('USES', os.environ['KUBECONFIG'], flush=True)\n")
    variables = {"KOPF_RUN_KUBECONFIG": str(tmp_path / "prod"), "KOPF_RUN_NAMESPACES": "a"}
    running = command("dev", "handlers.py", environment={**os.environ, **variables})
    assert not running.until("USES").strip().endswith("/prod")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_development_ends_with_its_operator(command, tmp_path, signum):
    (tmp_path / "handlers.py").write_text(
        "import kopf, os\n"
        "@kopf.on.startup()\ndef begin(logger, **_):\n    logger.info(f'Begun in {os.getpid()}.')\n"
        "@kopf.on.cleanup()\ndef end(logger, **_):\n    logger.info('Cleaned up.')\n"
    )
    running = command("dev", "handlers.py", "--kubeconfig", "config")
    match = re.search(r"Begun in (\d+)", running.until("Begun in"))
    running.until("Initial authentication has finished")
    assert running.stop(signum) == 0
    running.until("Cleaned up")
    with pytest.raises(ProcessLookupError):
        os.kill(int(match[1]), 0)
    assert not (tmp_path / "config").exists()


def test_the_operator_does_not_outlive_a_killed_command(command, tmp_path):
    (tmp_path / "handlers.py").write_text(
        "import kopf, os\n"
        "@kopf.on.cleanup()\ndef end(logger, **_):\n    logger.info('Cleaned up.')\n"
        "@kopf.on.create('widgets')\ndef fn(**_):\n    pass\n"
    )
    running = command("dev", "handlers.py", "--manifests", "widgets.yaml")
    running.until("Handler 'fn' succeeded")
    running.process.kill()
    running.until("Cleaned up")
    # The operator has the pipe, too.
    while running.lines.get(timeout=60) is not None:
        pass


def test_kopf_dev_shows_the_client_of_each_change(command, tmp_path):
    running = command("dev", "handlers.py", "--manifests", "widgets.yaml", "--kubeconfig", "config")
    line = running.until(r"^kopf changed widgets/first in default: ")
    assert "status.greet" in line and "Kopf's annotations" in line
    with Cluster("kubeconfig", kubeconfig=tmp_path / "config") as cluster:
        request = urllib.request.Request(
            cluster.url + "/api/v1/namespaces/default/configmaps",
            data=b'{"metadata": {"name": "mine"}}',
            headers={
                "Authorization": f"Bearer {cluster.connection.token}",
                "Content-Type": "application/json",
                "User-Agent": "another/1.0",
            },
        )
        context = ssl.create_default_context(cadata=cluster.connection.ca_data)
        urllib.request.urlopen(request, context=context).close()
    running.until(r"^another created configmaps/mine in default$")
    assert running.stop() == 0


def test_a_terminal_sees_colours(command, tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kopf", "dev", "handlers.py", "--manifests", "widgets.yaml"],
        cwd=tmp_path,
        stdout=theirs,
        stderr=theirs,
        env={name: value for name, value in os.environ.items() if name != "NO_COLOR"},
    )
    os.close(theirs)
    seen = b""
    while b"kopf changed widgets/first" not in seen or b"Hello, first!" not in seen:
        seen += os.read(ours, 10_000)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # it is closed at the other end
        while os.read(ours, 10_000):
            pass
    os.close(ours)
    assert process.wait(30) == 0
    assert b"\x1b[33mkopf changed widgets/first" in seen
    assert re.search(rb"\x1b\[32m[^\x1b]*Hello, first!", seen)


@pytest.mark.parametrize(("variables", "coloured"), [({"FORCE_COLOR": "1"}, True), ({}, False)])
def test_colours_are_forced_without_a_terminal(tmp_path, variables, coloured):
    (tmp_path / "handlers.py").write_text("import kopf\n@kopf.on.startup()\ndef stop(**_):\n    1 / 0\n")
    known = {name: value for name, value in os.environ.items() if not name.endswith("_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "kopf", "dev", "handlers.py"],
        cwd=tmp_path,
        env=known | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    seen = b""
    while b"division by zero" not in seen:
        seen += process.stdout.readline()
    process.send_signal(signal.SIGINT)
    seen += process.stdout.read()
    process.stdout.close()
    process.wait(30)
    assert (b"\x1b[" in seen) == coloured, seen


@pytest.mark.parametrize(
    ("args", "code", "printed"),
    [
        ((), 0, "Usage: kopf [OPTIONS] COMMAND"),
        (("run",), 0, "Usage: kopf run [OPTIONS] [PATHS]..."),
        (("nosuch",), 2, "No such command 'nosuch'."),
    ],
)
def test_help_is_a_command_too(tmp_path, args, code, printed):
    command = [sys.executable, "-m", "kopf", "help", *args]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert printed in done.stdout + done.stderr


def test_development_needs_one_command_and_keeps_the_objects(command, tmp_path):
    args = ("dev", "handlers.py", "--state", "state.json", "--kubeconfig", "config")
    running = command(*args, "--manifests", "widgets.yaml")
    running.until(rf"export KUBECONFIG={tmp_path}/config\n")
    running.until(r"kubectl get widgets")
    running.until("Hello, first!")
    with Cluster("kubeconfig", kubeconfig=tmp_path / "config") as cluster:
        cluster.wait_for("widgets", "first", {"status": {"greet": {"greeting": "hello"}}})
        cluster.patch("widgets", "first", {"metadata": {"labels": {"mine": "yes"}}})
    assert running.stop() == 0
    again = command(*args)
    again.until("objects are back")
    again.until("Initial authentication has finished")
    with Cluster("kubeconfig", kubeconfig=tmp_path / "config") as cluster:
        body = cluster.get("widgets", "first")
        assert body["metadata"]["labels"] == {"mine": "yes"}
        assert body["status"] == {"greet": {"greeting": "hello"}}
    assert again.stop() == 0
    assert not any("Hello" in line for line in again.seen), "it is not created again"


def test_changed_handlers_are_loaded_and_the_objects_stay(command, tmp_path):
    running = command(
        "dev", "handlers.py", "--manifests", "widgets.yaml", "--reload", "--kubeconfig", "config"
    )
    running.until("Hello, first!")
    running.until("Creation is processed")
    file = tmp_path / "handlers.py"
    file.write_text(file.read_text().replace("on.create", "on.resume").replace("Hello", "Welcome back"))
    running.until("The operator is started again")
    running.until("Welcome back, first!")
    assert running.stop() == 0


def test_files_that_are_saved_while_the_operator_stops_are_read_by_the_next_one(command, tmp_path):
    file, other = tmp_path / "handlers.py", tmp_path / "other.py"
    text = file.read_text()
    saved = text.replace("on.create", "on.resume").replace("Hello", "Welcome back")
    (tmp_path / "saved.txt").write_text(saved)
    file.write_text(
        f"{text}\n\n@kopf.on.cleanup()\ndef save(**_):\n"
        f"    import shutil\n    shutil.copyfile({str(tmp_path / 'saved.txt')!r}, {str(file)!r})\n"
    )
    running = command("dev", "handlers.py", "--manifests", "widgets.yaml", "--reload")
    running.until("Hello, first!")
    running.until("Creation is processed")
    other.write_text("a = 1")
    running.until(r"^other\.py: changed\. The operator is started again")
    running.until("Welcome back, first!")
    other.write_text("a = 22")
    running.until("started again")
    running.until("Welcome back, first!")
    assert running.stop() == 0
    restarts = [line for line in running.seen if "started again" in line]
    assert restarts == ["other.py: changed. The operator is started again.\n"] * 2, "nothing else has changed"


def test_an_operator_that_fails_ends_the_command(command, tmp_path):
    (tmp_path / "handlers.py").write_text("raise ValueError('There is a mistake here.')")
    running = command("dev", "handlers.py")
    running.until("There is a mistake here")
    assert running.process.wait(30) == 1


def test_objects_that_cannot_be_applied_do_not_end_development(command, tmp_path):
    other = WIDGETS.partition("---")[0].replace("name: widgets", "name: others")
    other = other.replace("plural: widgets", "plural: others")
    broken = [
        "{apiVersion: v1, kind: ConfigMap, metadata: }",
        "{apiVersion: v1, kind: Secret, metadata: text}",
    ]
    good = "{apiVersion: v1, kind: ConfigMap, metadata: {name: good}}"
    (tmp_path / "widgets.yaml").write_text("\n---\n".join([WIDGETS, other, *broken, good]))
    # It waits for its CRD, and cannot be applied then.
    early = "{apiVersion: behaviours.example.com/v1, kind: Widget, metadata: }"
    (tmp_path / "early.yaml").write_text(early)
    running = command("dev", "handlers.py", "--manifests", "early.yaml", "--manifests", "widgets.yaml")
    running.until("early.yaml: .* Widget None is applied when the CRD comes")
    running.until(
        "CustomResourceDefinition others.behaviours.example.com cannot be applied: .*already in use"
    )
    running.until("widgets.yaml: ConfigMap None cannot be applied: .*name")
    running.until("widgets.yaml: Secret None cannot be applied: ")
    running.until("Applied: ConfigMap good")
    patterns = ("early.yaml: Widget None cannot be applied: .*name", "Hello, first!")
    for _ in patterns:  # in any order
        running.until("|".join(patterns))
    assert all(re.search(pattern, "".join(running.seen)) for pattern in patterns)
    assert running.stop() == 0


def test_the_kept_objects_are_private(command, tmp_path):
    (tmp_path / "secret.yaml").write_text(
        "{apiVersion: v1, kind: Secret, metadata: {name: one}, stringData: {k: v}}"
    )
    state = tmp_path / "state.json"
    state.write_text("[]")
    state.chmod(0o644)
    running = command("dev", "handlers.py", "--state", "state.json", "--manifests", "secret.yaml")
    running.until("Initial authentication has finished")
    assert running.stop() == 0
    assert state.stat().st_mode & 0o777 == 0o600
    assert '"Secret"' in state.read_text()
    assert [it.name for it in tmp_path.iterdir() if "state" in it.name] == ["state.json"]


def test_objects_that_cannot_be_restored_stay_in_the_file(command, tmp_path):
    body = {"apiVersion": "example.com/v1", "kind": "Nosuch", "metadata": {"name": "one", "uid": "1"}}
    state = tmp_path / "state.json"
    state.write_text(json.dumps([body]))
    running = command("dev", "handlers.py", "--state", "state.json")
    running.until("0 objects are back from state.json")
    running.until("Nosuch one cannot be restored, and stays in state.json: The cluster serves no")
    running.until("Initial authentication has finished")
    assert running.stop() == 0
    assert json.loads(state.read_text()) == [body]


def test_objects_that_cannot_be_kept_are_one_line(command, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    running = command("dev", "handlers.py", "--state", "folder/state.json", "--kubeconfig", "config")
    running.until("Initial authentication has finished")
    folder.rmdir()
    assert running.stop() == 1
    rest = "".join(iter(running.lines.get, None))
    assert "Error: The objects cannot be kept in folder/state.json: No such file or directory." in rest
    assert "Traceback" not in rest
    assert not (tmp_path / "config").exists()


SLOW = """
import kopf, threading

@kopf.on.create("widgets")
def greet(logger, **_):
    logger.info("It has begun.")
    threading.Event().wait(600)
"""


@pytest.mark.parametrize("reload", [(), ("--reload",)])
def test_a_second_interrupt_stops_development_at_once(command, tmp_path, reload):
    (tmp_path / "handlers.py").write_text(SLOW)
    running = command("dev", "handlers.py", "--manifests", "widgets.yaml", *reload)
    running.until("It has begun")
    running.process.send_signal(signal.SIGINT)
    running.until("Signal SIGTERM is received")
    running.until(r"Waiting for 1 handler: greet of default/first \(.*Press Ctrl\+C again")
    assert running.stop(signal.SIGINT) == 130
    running.until("stopped at once, without cleanup. Not finished: 1 handler: greet of default/first")


def test_an_interrupt_while_manifests_are_applied_starts_no_operator(command, tmp_path):
    (tmp_path / "handlers.py").write_text("print('The operator has begun.', flush=True)\n")
    # The command waits for the writer of the second file.
    os.mkfifo(tmp_path / "later.yaml")
    files = [f"--manifests={name}.yaml" for name in ("widgets", "later")]
    running = command("dev", "handlers.py", *files, "--state=kept.yaml")
    running.until("Applied: Widget first")
    running.process.send_signal(signal.SIGINT)
    (tmp_path / "later.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: late}}")
    running.until("objects are kept in kept.yaml")
    assert running.process.wait(60) == 0
    running.close()
    rest = [line for line in iter(running.lines.get, None)]
    output = "".join([*running.seen, *rest])
    assert "ConfigMap late" not in output and "The operator has begun." not in output, output
    assert '"first"' in (tmp_path / "kept.yaml").read_text()


def test_options_of_the_operator_are_passed_to_it(command, tmp_path):
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "__init__.py").touch()
    shutil.copy(FILE, tmp_path / "operators" / "inner.py")
    args = ["-m", "operators.inner", "-n", "default", "--log-format", "json", "--debug", "--log-prefix"]
    args += ["--log-refkey", "about"]
    with Cluster() as cluster:
        port = cluster.url.rpartition(":")[2]
    url = f"http://127.0.0.1:{port}/healthz"
    running = command("dev", *args, "--liveness", url, "--manifests", "widgets.yaml")
    running.until(r'"message": "Serving health status at http://127.0.0.1')
    running.until(r'"message": "\[default/first\] Hello, first!".*"about": ')
    assert running.stop() == 0
    assert any("in 'default'" in line for line in running.seen)


def test_objects_wait_for_the_crd_of_their_kind(command, tmp_path):
    crd, _, widget = WIDGETS.partition("---")
    (tmp_path / "widget.yaml").write_text(widget)
    (tmp_path / "bad.yaml").write_text("a: [")
    args = ["--manifests", "widget.yaml", "--manifests", "bad.yaml", "--kubeconfig", "config"]
    running = command("dev", "handlers.py", *args)
    running.until(r"widget.yaml: .* Widget first is applied when the CRD comes")
    running.until(r"bad.yaml cannot be read")
    running.until(r'in "bad.yaml", line')
    running.until("Initial authentication has finished")
    with Cluster("kubeconfig", kubeconfig=tmp_path / "config") as cluster:
        cluster.create(crd)
        running.until("Applied: Widget first")
        # The operator and the command write at the same time, in any order.
        if not any("Hello, first!" in line for line in running.seen):
            running.until("Hello, first!")
        cluster.disown_crds()
    assert running.stop() == 0


def test_fields_that_the_schema_drops_are_not_reported_as_changed(command, tmp_path):
    strict = WIDGETS.replace(
        "x-kubernetes-preserve-unknown-fields: true", "properties: {spec: {type: object}}"
    )
    (tmp_path / "widgets.yaml").write_text(strict)
    running = command("dev", "handlers.py", "--manifests", "widgets.yaml")
    line = running.until(r"^kopf changed widgets/first in default: ")
    assert "changed widgets/first in default: Kopf's annotations" in line
    assert "(not stored, as the schema has no such fields: status.greet)" in line
    assert running.stop() == 0


def test_a_broken_file_waits_for_its_repair(command, tmp_path):
    good = (tmp_path / "handlers.py").read_text()
    (tmp_path / "handlers.py").write_text("def broken(:")
    running = command("dev", "handlers.py", "--manifests", "widgets.yaml", "--reload")
    running.until("Error: Cannot load handlers.py: SyntaxError")
    running.until(r"The operator has ended \(exit code 1\). Waiting for changed files.")
    (tmp_path / "handlers.py").write_text(good)
    running.until("handlers.py: changed. The operator is started again")
    running.until("Hello, first!")
    assert running.stop() == 0
