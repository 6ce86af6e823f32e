"""Signals to `kopf run`: ignored ones, during a login that hangs, during a call; signals to `kopf status`."""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.kopf_embedded_only
# As a shell without job control starts jobs in the background.
IN_BACKGROUND = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
GREETING = """
import kopf

@kopf.on.create("configmaps")
def create(name, logger, **_):
    logger.info(f"Hello, {name}.")
"""
HANGING = """
import kopf, threading

@kopf.on.login()
def log_in(logger, **_):
    logger.warning("It has begun.")
    threading.Event().wait()

@kopf.on.create("configmaps")
def create(**_):
    pass
"""


class Run:
    """A running `kopf run`, whose log is read as it comes."""

    def __init__(self, process):
        self.process = process
        self.log = ""

    def until(self, text):
        for line in self.process.stderr:
            self.log += line
            if text in line:
                return
        raise AssertionError(f"{text!r} has not come:\n{self.log}")

    def end(self):
        """The exit code."""
        self.log += self.process.stderr.read()
        return self.process.wait(30)


@pytest.fixture
def start(tmp_path):
    started = []

    def run(source, *, before=(), args=("run", "-A"), **variables):
        (tmp_path / "handlers.py").write_text(source)
        hidden = ("KUBECONFIG", "KOPF_COMPAT")
        known = {name: value for name, value in os.environ.items() if name not in hidden}
        process = subprocess.Popen(
            [*before, sys.executable, "-m", "kopf", *args, "handlers.py"],
            cwd=tmp_path,
            env={**known, "HOME": str(tmp_path), **variables},
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return Run(process)

    yield run
    for process in started:
        process.kill()
        process.wait(30)
        process.stderr.close()


def test_an_ignored_interrupt_stays_ignored(kopf_cluster, start):
    run = start(GREETING, before=IN_BACKGROUND, KUBECONFIG=str(kopf_cluster.kubeconfig))
    run.until("Initial authentication has finished")
    run.process.send_signal(signal.SIGINT)
    kopf_cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "alice"}})
    run.until("Hello, alice.")
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 0, run.log
    assert "Signal SIGTERM is received. Operator is stopping." in run.log
    assert "SIGINT" not in run.log


def test_an_ignored_interrupt_is_received_as_in_kopf_1_45(kopf_cluster, start):
    config = str(kopf_cluster.kubeconfig)
    run = start(GREETING, before=IN_BACKGROUND, KUBECONFIG=config, KOPF_COMPAT="1.45")
    run.until("Initial authentication has finished")
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 0, run.log
    assert "Signal SIGINT is received. Operator is stopping." in run.log


@pytest.mark.timeout(60)
def test_the_exit_does_not_wait_for_a_hanging_login(start):
    run = start(HANGING)
    run.until("It has begun.")
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 0, run.log
    assert "Activity 'log_in' is cancelled. Will escalate." in run.log


RECONCILING = """
import kopf

@kopf.on.reconcile("configmaps", labels={"long": "yes"})
async def sync(name, stopped, patch, api, logger, **_):
    logger.info("It has begun.")
    await stopped.wait()
    found = await api.get("configmaps", name)
    await api.patch("configmaps", name, {"data": {"found": found.metadata.name}})
    patch.metadata.annotations["example.com/patched"] = "yes"
"""


def test_1_14_21_a_reconciliation_reads_and_writes_until_its_end(kopf_cluster, start):
    metadata = {"name": "long", "labels": {"long": "yes"}}
    kopf_cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    run = start(RECONCILING, KUBECONFIG=str(kopf_cluster.kubeconfig))
    run.until("It has begun.")
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 0, run.log
    body = kopf_cluster.get("configmaps", "long")
    assert body["data"] == {"found": "long"}
    assert body["metadata"]["annotations"] == {"example.com/patched": "yes"}
    assert "ERROR" not in run.log and "WARNING" not in run.log, run.log


@pytest.mark.parametrize("args, code", [(("status", "--fail-on=stuck"), 1), (("status",), 0)])
def test_an_interrupted_check_has_not_passed(start, args, code):
    run = start(HANGING, args=args)
    run.until("It has begun.")
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == code, run.log
    assert ("The states of the objects are not known" in run.log) == (code == 1)
