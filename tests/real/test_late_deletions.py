"""Objects are deleted, and the operator learns of it by a write, before the watch delivers the deletion."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from tests.support import proxy as proxies

HANDLERS = """
import kopf
from calls import called


@kopf.on.startup()
def configure(settings, **_):
    # The watch events are later than this.
    settings.persistence.consistency_timeout = 0


@kopf.on.event('parcels')
def event(type, spec, **_):
    called('event', type=type, number=spec['number'])


@kopf.on.create('parcels')
def create(spec, patch, **_):
    called('create', number=spec['number'])
    if spec['number'] == 1:
        with open('go') as gate:
            gate.read()
    patch.metadata.labels['by'] = str(spec['number'])
    patch.status['by'] = spec['number']
    return {'number': spec['number']}


@kopf.on.update('parcels')
def update(spec, **_):
    called('update', number=spec['number'])
"""
MISSING = "Patching was skipped: the object does not exist anymore"


@pytest.fixture
def proxy(cluster) -> Iterator[proxies.Proxy]:
    with contextlib.closing(proxies.Proxy(cluster)) as made:
        yield made


@pytest.fixture
def start(operator, shelf, proxy, tmp_path):
    """Starts the operator, and holds back its watches while the handler of the first object waits."""

    def started():
        os.mkfifo(tmp_path / "go")
        shelf.create("one", {"number": 1})
        run = operator(HANDLERS, kubeconfig=proxy.kubeconfig(tmp_path))
        run.wait_for_call("create")
        proxy.hold_watches()
        return run

    return started


def test_nothing_of_a_deleted_object_is_written_into_its_successor(start, shelf, proxy, tmp_path):
    run = start()
    shelf.delete("one")
    successor = shelf.create("one", {"number": 2})
    (tmp_path / "go").write_text("")
    run.wait_for_log(MISSING)
    assert shelf.get("one") == successor
    proxy.release_watches()
    handled = shelf.wait_until_handled("one", status={"by": 2, "create": {"number": 2}})
    assert handled["metadata"]["labels"] == {"by": "2"}
    assert [call.details["number"] for call in run.called("create")] == [1, 2]


def test_no_change_handler_is_called_for_the_last_states_of_a_deleted_object(start, shelf, proxy, tmp_path):
    run = start()
    shelf.patch("one", {"spec": {"changed": "yes"}})
    shelf.delete("one")
    (tmp_path / "go").write_text("")
    run.wait_for_log(MISSING)
    proxy.release_watches()
    assert run.wait_for_call("event", count=3).details["type"] == "DELETED"
    run.stop()
    assert [call.details["type"] for call in run.called("event")] == [None, "MODIFIED", "DELETED"]
    assert (len(run.called("create")), len(run.called("update"))) == (1, 0)
