"""The health endpoints of a running operator, with faults of its connections and of its handlers."""

import itertools
import json
import os
import pathlib
import random
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from tests.faults.fault_proxy import Asked, FaultAction, FaultProxy, free_port, rejection

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}
SCRIPT = pathlib.Path(__file__).with_name("health_operator.py")
TIMEOUT = 60.0
HEALTH_SECONDS = float(os.environ.get("HEALTH_SECONDS", "15"))
HEALTH_SEED = int(os.environ.get("HEALTH_SEED", "1"))


class Operator:
    """One operator, and a proxy between it and the cluster."""

    def __init__(self, cluster, folder: pathlib.Path, **options) -> None:
        self.cluster, self.folder = cluster, folder
        info = cluster.connection
        context = ssl._create_unverified_context() if info.server.startswith("https") else None
        if context is not None and info.certificate_path:
            context.load_cert_chain(info.certificate_path, info.private_key_path)
        self.proxy = FaultProxy(info.server, info.as_http_headers(), context)
        self.url = f"http://127.0.0.1:{free_port()}"
        options |= {"server": self.proxy.url, "folder": str(folder)}
        environment = {name: it for name, it in os.environ.items() if not name.startswith(("KOPF_", "KUBE"))}
        environment |= {"HEALTH_OPTIONS": json.dumps(options), "PYTHONPATH": os.pathsep.join(sys.path)}
        scope = ["-A"] if cluster.kind == "embedded" else ["--namespace", cluster.namespace]
        command = [sys.executable, "-m", "kopf", "run", *scope, "--standalone"]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, f"--liveness={self.url}/healthz", str(SCRIPT)],
                env=environment,
                stdout=log,
                stderr=log,
            )

    def get(self, path: str, timeout: float = 5) -> tuple[int, str]:
        """The status and the body; the status is 0 without a response."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=timeout) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def until(self, holds, seconds: float = TIMEOUT) -> float:
        """Wait until it holds; return after how many seconds it did."""
        begin = time.monotonic()
        while not holds():
            waited = time.monotonic() - begin
            assert waited < seconds, f"{self.log.read_text()}\n{self.get('/statusz')}"
            threading.Event().wait(0.05)
        return time.monotonic() - begin

    def until_ready(self) -> None:
        self.until(lambda: self.get("/readyz") == (200, "ok"))

    def until_marked(self, name: str) -> float:
        """The time at which the operator has marked this."""
        self.until(lambda: (self.folder / name).exists() and (self.folder / name).read_text())
        return float((self.folder / name).read_text())

    def create(self, name: str, seconds: float = 0, **labels: str) -> None:
        metadata = {"name": name, "labels": labels}
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}
        self.cluster.create({**body, "spec": {"seconds": seconds}})

    def probed(self, path: str, seconds: float) -> list[tuple[float, float, int, str]]:
        """The responses of so many seconds: the time, the duration, the status, and the body."""
        responses, end = [], time.time() + seconds
        while time.time() < end:
            at = time.time()
            responses.append((at, *self._timed(path)))
            threading.Event().wait(0.1)
        return responses

    def _timed(self, path: str) -> tuple[float, int, str]:
        begin = time.monotonic()
        status, body = self.get(path)
        return time.monotonic() - begin, status, body

    def stop(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)
        self.proxy.stop()


@pytest.fixture
def start(kopf_cluster, tmp_path):
    """Starts an operator with these options, and stops it at the end."""
    kopf_cluster.apply(CRD)
    operators = []

    def start(**options) -> Operator:
        operators.append(Operator(kopf_cluster, tmp_path, **options))
        return operators[-1]

    yield start
    for operator in operators:
        operator.stop()


pytestmark = pytest.mark.timeout(200)


def check_live(responses) -> None:
    failed = [(status, body) for _, _, status, body in responses if status != 200]
    assert responses and not failed, failed


def test_while_a_stream_is_silent_the_operator_is_alive_and_ready(start):
    """HEA-1."""
    operator = start(
        limits={"deaf_limit": 5, "supervision_limit": 5, "loop_limit": 20}, watches_configmaps=True
    )
    operator.until_ready()
    for plural in ("widgets", "configmaps"):

        def black_hole(asked: Asked, plural=plural) -> FaultAction | None:
            return FaultAction(hang=True) if f"/{plural}" in asked.path and asked.method == "GET" else None

        operator.proxy.faults.append(black_hole)
        operator.proxy.silence()
        ready = []
        checking = threading.Thread(target=lambda to=ready: to.extend(operator.probed("/readyz", 8)))
        checking.start()
        live = operator.probed("/livez", 8)
        checking.join()
        check_live(live)
        check_live(ready)
        resource = "widgets.example.com" if plural == "widgets" else plural
        metrics = operator.get("/metrics")[1]
        shown = rf'kopf_watch_streams_troubled{{resource="{re.escape(resource)}",trouble="\w+"}} 1\n'
        assert re.search(shown, metrics), metrics
        operator.proxy.faults.clear()
        operator.proxy.cut(everything=True)


def test_restarts_of_the_api_server_do_not_affect_health(start):
    """HEA-2."""
    operator = start(limits={"deaf_limit": 5, "supervision_limit": 5, "loop_limit": 20})
    operator.until_ready()
    responses = []
    for _ in range(6):
        operator.proxy.stop()
        responses += operator.probed("/livez", 0.8) + operator.probed("/readyz", 0.8)
        operator.proxy.start()
        responses += operator.probed("/livez", 0.4) + operator.probed("/readyz", 0.4)
    check_live(responses)
    operator.create("after")
    operator.until_marked("end-after")


FAULTS = [
    ("code", 500),
    ("code", 503),
    ("code", 403),
    ("too-many-requests", 1),
    ("conflict", 0),
    ("reset", 0),
    ("lost", 0),
    ("latency", 1),
    ("silence", 0),
    ("gone", 0),
]


@pytest.mark.kopf_embedded_only
@pytest.mark.timeout(120 + 2 * HEALTH_SECONDS)
def test_random_faults_of_the_server_do_not_fail_liveness(start):
    """HEA-10, for some seconds; `HEALTH_SECONDS=60000` are the 1,000 minutes."""
    chance = random.Random(HEALTH_SEED)
    limits = {"deaf_limit": 15, "supervision_limit": 15, "engine_limit": 15, "border_limit": 20}
    operator = start(limits={**limits, "loop_limit": 20, "stall_limit": 30}, watches_configmaps=True)
    operator.until_ready()
    cluster, end = operator.cluster, time.monotonic() + HEALTH_SECONDS
    for number in itertools.count():
        if time.monotonic() > end:
            break
        fault, value = chance.choice(FAULTS)
        cluster.inject(fault, value, verb=chance.choice(["", "watch", "list", "patch"]))
        chance.choice([cluster.drop_watches, operator.proxy.cut, operator.proxy.silence, int])()
        operator.create(f"w{number}")
        check_live(operator.probed("/livez", chance.uniform(0.2, 4)))
        cluster.clear_faults()
        operator.proxy.cut(everything=True)
        check_live(operator.probed("/livez", 0.5))
    assert number > 1
    operator.create("after")
    operator.until_marked("end-after")


@pytest.mark.parametrize("name", ["sleeps", "holds"])
def test_a_blocked_event_loop_fails_liveness_until_it_runs_again(start, name):
    """HEA-3, HEA-4: by `time.sleep()`, and by a C function that holds the GIL."""
    operator = start(limits={"loop_limit": 5})
    operator.until_ready()
    operator.create(name, seconds=10)
    begin = operator.until_marked(f"begin-{name}")
    responses = operator.probed("/livez", 12)
    end = operator.until_marked(f"end-{name}")
    failures = [(at, body) for at, _, status, body in responses if status == 503]
    assert failures and all(body.startswith("[-]loop failed: no heartbeat for ") for _, body in failures)
    assert 3.5 < failures[0][0] - begin < 6
    assert all(status == 200 for at, _, status, _ in responses if at > end + 1)
    assert failures[-1][0] < end + 1
    durations = sorted(duration for _, duration, _, _ in responses)
    # The slowest ones depend on the load of the machine.
    assert durations[len(durations) * 9 // 10] < 0.1, durations
    operator.until(lambda: operator.get("/livez") == (200, "ok"))


def test_a_suspended_process_is_not_restarted(start):
    """HEA-5."""
    limits = {"loop_limit": 5, "engine_limit": 5, "border_limit": 5, "deaf_limit": 5, "stall_limit": 5}
    operator = start(limits=limits)
    operator.until_ready()
    operator.process.send_signal(signal.SIGSTOP)
    # The signal is not delivered at once: until then, the threads can respond.
    os.waitid(os.P_PID, operator.process.pid, os.WSTOPPED | os.WNOWAIT)
    suspended = [operator.get("/livez", timeout=1)[0] for _ in range(12)]
    assert set(suspended) == {0}
    operator.process.send_signal(signal.SIGCONT)
    check_live(operator.probed("/livez", 10))


def test_tasks_that_python_does_not_take_fail_their_check_and_no_other_one(start):
    """HEA-6: the engine submits tasks, and Python does not take them."""
    operator = start(limits={"border_limit": 3})
    operator.until_ready()
    operator.create("planted", plant="border")
    operator.until_marked("end-planted")
    seconds = operator.until(lambda: operator.get("/livez")[0] == 503)
    assert seconds < 3 + 5 + 5, "the limit, 5 s, and the time of the handler"
    assert re.fullmatch(
        r"\[-\]border failed: a task has waited for Python for \d+ s\n", operator.get("/livez")[1]
    )


def test_a_forbidden_kind_ends_the_startup_but_the_operator_is_not_ready(start):
    """HEA-7."""
    operator = start(watches_configmaps=True, is_slow=True)
    operator.until_marked("starting")

    def forbid(asked: Asked) -> FaultAction | None:
        is_denied = "/configmaps" in asked.path and asked.method == "GET"
        return rejection(403, "Forbidden") if is_denied else None

    operator.proxy.faults.append(forbid)
    (operator.folder / "go").touch()
    operator.until(lambda: operator.get("/startupz") == (200, "ok"))
    status, body = operator.get("/readyz")
    assert status == 503
    assert re.fullmatch(r"\[-\]synced failed: configmaps\S* \S.* \(403\)\n", body), body
    assert operator.get("/livez") == (200, "ok")
    operator.proxy.faults.clear()
    assert operator.until(lambda: operator.get("/readyz") == (200, "ok")) < 5


def test_during_the_startup_handlers_the_operator_is_alive_but_neither_started_nor_ready(start):
    """HEA-8."""
    operator = start(is_slow=True)
    operator.until_marked("starting")
    operator.until(lambda: operator.get("/livez")[0] == 200)
    failed = "[-]started failed: the startup handlers have not finished\n"
    for _ in range(20):
        assert operator.get("/livez") == (200, "ok")
        assert operator.get("/healthz") == (200, "{}")
        assert operator.get("/startupz") == operator.get("/readyz") == (503, failed)
        threading.Event().wait(0.1)
    (operator.folder / "go").touch()
    operator.until_ready()
    assert operator.get("/startupz") == operator.get("/ready") == (200, "ok")
    assert operator.get("/healthz") == (200, "{}")
    status = json.loads(operator.get("/statusz")[1])
    assert status["state"] == "active"
    assert all(check["passes"] for check in status["checks"]), status


def test_a_revoked_token_fails_readiness_while_the_operator_is_alive(start):
    """HEA-9."""
    operator = start(login_timeout=12, limits={"credentials_limit": 3})
    operator.until_ready()
    operator.proxy.faults.append(lambda asked: rejection(401, "Unauthorized"))
    operator.proxy.cut(everything=True)
    begin = time.monotonic()
    unready = None
    while operator.process.poll() is None:
        live, (ready, body) = operator.get("/livez"), operator.get("/readyz")
        assert live[0] in (0, 200), live
        if ready == 503 and unready is None and body.startswith("[-]credentials"):
            unready = time.monotonic() - begin
        assert time.monotonic() - begin < TIMEOUT, operator.log.read_text()
        threading.Event().wait(0.1)
    assert unready is not None and unready < 3 + 5
