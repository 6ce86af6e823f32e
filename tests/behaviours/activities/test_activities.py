"""Startup and cleanup handlers."""

import pathlib

import kopf
import pytest
from kopf.testing import Operator

FILE = pathlib.Path(__file__).with_name("handlers.py")


def test_startup_is_before_everything_and_cleanup_after(run, make, cluster):
    running = run()
    assert running.of("begin") == [None]
    make()
    cluster.wait_for("widgets", "one", {"metadata": {"finalizers": ["example.com/own-finalizer"]}})
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one")
    assert (running.of("deleted"), running.of("end")) == ([None], [])
    running.stop()
    assert running.of("end") == [None]


def test_a_failed_startup_is_the_end(cluster):
    calls = []
    memo = kopf.Memo(calls=calls, fail=True)
    with pytest.raises(Exception, match="One or more handlers failed"), Operator(cluster, FILE, memo=memo):
        pytest.fail("It must not start.")
    assert calls[0] == ("begin", None)
