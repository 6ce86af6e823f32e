"""Watches of kinds that do not change, with the default settings: bookmarks keep them open."""

import contextlib
import time

import pytest

from tests.support import proxy as proxies

HANDLERS = """
import kopf
from calls import called


@kopf.on.event('parcels')
def event(type, name, **_):
    called('event', type=type, name=name)
"""


# The server sends a bookmark per minute; the test only waits for three of them.
@pytest.mark.timeout(400)
def test_bookmarks_keep_idle_watches_open(operator, shelf, cluster, tmp_path):
    shelf.create("old")
    with contextlib.closing(proxies.Proxy(cluster)) as proxy:
        run = operator(HANDLERS, kubeconfig=proxy.kubeconfig(tmp_path))
        run.wait_for_call("event")
        until = time.monotonic() + 240
        while len([one for one in proxy.bookmarks if one.path.endswith("/parcels")]) < 3:
            assert time.monotonic() < until, f"bookmarks: {proxy.bookmarks}; requests: {proxy.requests}"
            run.check_alive()
            time.sleep(1)
        requests = proxy.asked("/parcels")
        assert ["watch" in one.query for one in requests] == [False, True], "one list, one watch"
        assert "is inactive, reconnecting" not in run.log
        shelf.create("new")
        run.wait_for_call("event", count=2)
        assert [(call.details["type"], call.details["name"]) for call in run.called("event")] == [
            (None, "old"),
            ("ADDED", "new"),
        ]
