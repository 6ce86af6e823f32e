"""Watches of kinds that do not change, with the default settings: bookmarks keep them open."""

import contextlib
import re

import pytest

from tests.support import proxy as proxies
from tests.support.fixtures import Shelf

HANDLERS = """
import kopf
from calls import called


@kopf.on.event('parcels')
def event(type, name, **_):
    called('event', type=type, name=name)
"""


# The server sends a bookmark per minute; the test only waits for three of them.
@pytest.mark.timeout(400)
def test_bookmarks_keep_idle_watches_open(operator, shelf, cluster, new_namespace, tmp_path):
    shelf.create("old")
    with contextlib.closing(proxies.Proxy(cluster)) as proxy:
        run = operator(HANDLERS, kubeconfig=proxy.kubeconfig(tmp_path))
        run.wait_for_call("event")
        # The server sends no bookmark until its version is newer than that at which the watch began.
        proxy.wait_for_open_watch("/parcels")
        Shelf(cluster, shelf.resource, new_namespace("other")).create("elsewhere")
        proxy.wait_for_bookmarks("/parcels", 3, timeout=240, alive=run.check_alive)
        requests = proxy.asked("/parcels")
        assert ["watch" in one.query for one in requests] == [False, True], "one list, one watch"
        assert not re.search(r"Watch-stream for parcels\S* in '\S+' is inactive", run.log)
        shelf.create("new")
        run.wait_for_call("event", count=2)
        assert [(call.details["type"], call.details["name"]) for call in run.called("event")] == [
            (None, "old"),
            ("ADDED", "new"),
        ]
