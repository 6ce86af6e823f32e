"""The clusters of the benchmarks: the embedded API server, or a real control plane. Each workload gets a new
one."""

from __future__ import annotations

import abc
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

import yaml

from benches.harness import processes
from benches.harness.load import BENCHES, Client

Counts = dict[str, int]


class Cluster(abc.ABC):
    """An API server, without a kubelet or controllers."""

    title: str
    pids: list[int]
    data: dict[str, Any]
    """What workloads leave to themselves for the next round."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-"))
        self.kubeconfig = self.folder / "kubeconfig"

    def _connect(self) -> None:
        config = yaml.safe_load(self.kubeconfig.read_text())
        self.client = Client(config["clusters"][0]["cluster"], config["users"][0]["user"])

    @abc.abstractmethod
    def writes(self) -> int:
        """How many writes there were so far, by whomever; in memory, those that have changed something."""

    @abc.abstractmethod
    def _stop(self) -> None: ...

    def cpu(self) -> float:
        """The server's seconds of CPU so far."""
        return sum(processes.cpu(pid) for pid in self.pids)

    def stop(self) -> None:
        """Stop it and remove what is left of it."""
        self.client.close()
        try:
            self._stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


class Embedded(Cluster):
    """The embedded API server, in a separate process."""

    title = "embedded"

    def __init__(self, python: str) -> None:
        super().__init__()
        command = [python, "-m", "kopf", "cluster", "--no-controllers", "--kubeconfig", str(self.kubeconfig)]
        with (self.folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self.pids = [self._process.pid]
        deadline = time.monotonic() + 30
        while not self.kubeconfig.exists():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(
                    "The embedded server does not start: " + (self.folder / "server.log").read_text()
                )
            time.sleep(0.02)
        self._connect()

    # Each write takes the next number.
    def writes(self) -> int:
        listing = json.loads(self.client.ok("GET", f"{BENCHES}?limit=1"))
        return int(listing["metadata"]["resourceVersion"])

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class ControlPlane(Cluster):
    """An etcd with a kube-apiserver, from `KUBEBUILDER_ASSETS`."""

    title = "control plane"

    def __init__(self, python: str) -> None:
        super().__init__()
        command = [python, str(pathlib.Path(__file__).with_name("control_plane.py")), str(self.folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        with self._process.stdout as output:
            is_ready = output.readline()
        if not is_ready:
            raise RuntimeError("The control plane does not start: see the error above.")
        children = pathlib.Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        self.pids = [int(pid) for pid in children.read_text().split()]
        self._connect()

    def writes(self) -> int:
        text = self.client.ok("GET", "/metrics").decode()
        count = 0
        for labels, value in re.findall(r"^apiserver_request_total\{([^}]*)\} (\S+)", text, re.MULTILINE):
            known = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if known["verb"] in WRITING and known["resource"] in OURS and known["code"].startswith("2"):
                count += int(float(value))
        return count

    def _stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


WRITING = {"POST", "PATCH", "PUT", "DELETE"}
OURS = {"benches", "events", "configmaps"}

Starter = Callable[[], Cluster]


def starter(python: str, *, real: bool) -> Starter:
    """A function that starts clusters of this kind with the interpreter of kopf-rs."""
    return lambda: ControlPlane(python) if real else Embedded(python)


def prepared(start: Starter) -> Any:
    """A cluster with the CRD of the workloads."""
    cluster = start()
    try:
        cluster.client.define()
        if isinstance(cluster, ControlPlane):
            time.sleep(3)  # the API server ends watches soon after a CRD is established
    except BaseException:
        cluster.stop()
        raise
    return cluster
