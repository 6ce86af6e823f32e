"""Loggers have the same names as in Kopf 1.45: users filter logs by them."""

SCRIPT = """
import logging
import os
import pathlib
import threading

import kopf

NAMES = set()
stop = threading.Event()


class Collector(logging.Handler):
    def emit(self, record):
        NAMES.add(record.name)


logging.getLogger().addHandler(Collector())
logging.getLogger().setLevel(logging.DEBUG)


@kopf.on.startup()
async def start(settings, **_):
    settings.networking.error_backoffs = [0.1]


@kopf.on.cleanup()
async def finish(**_): ...


@kopf.on.login()
def login(**kwargs):
    return kopf.login_with_kubeconfig(**kwargs)


@kopf.on.create("parcels")
def create(**_):
    stop.set()


@kopf.on.event("nothings")
def never(**_): ...


kopf.run(
    standalone=True,  # other tests create peerings, which have a logger, too
    namespaces=[os.environ["NAMESPACE"]],
    stop_flag=stop,
    liveness_endpoint="http://127.0.0.1:0/healthz",
)
pathlib.Path(os.environ["NAMES_FILE"]).write_text("\\n".join(sorted(NAMES)))
"""

NAMES = {
    "kopf._cogs.clients.watching",
    "kopf._core.engines.activities",
    "kopf._core.engines.probing",
    "kopf._core.reactor.observation",
    "kopf._core.reactor.running",
    "kopf.activities.authentication",
    "kopf.activities.cleanup",
    "kopf.activities.startup",
    "kopf.objects",
}


def test_loggers_have_their_old_names(operator, shelf, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    file = tmp_path / "names.txt"
    environment = {"NAMES_FILE": str(file), "NAMESPACE": operator.namespace}
    run = operator(script="script.py", environment=environment)
    shelf.create("box")
    assert run.wait_for_exit() == 0, run.log
    names = {name for name in file.read_text().split() if name.startswith("kopf")}
    assert names >= NAMES
    # Loggers of Kopf 1.45 for its internals.
    assert names - NAMES <= {"kopf._core.reactor.orchestration", "kopf._cogs.clients.api"}
