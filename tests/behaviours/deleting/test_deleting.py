"""Deletions are held by a finalizer until their handlers are done."""

import pytest


def test_the_finalizer_is_there_from_the_beginning(run, make, handled, finalizer):
    run()
    make()
    assert handled()["metadata"]["finalizers"] == [finalizer]


def test_the_object_goes_when_the_handlers_are_done(run, make, handled, cluster):
    running = run()
    make()
    handled()
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one")
    running.settle()
    assert running.of("clean") == [0]
    assert running.of("notice") == [None]


def test_an_unfinished_handler_holds_the_object(run, make, handled, cluster, finalizer):
    running = run()
    make(spec={"busy": True})
    handled()
    cluster.delete("widgets", "one")
    running.until("clean", 2)
    body = cluster.get("widgets", "one")
    assert body["metadata"]["finalizers"] == [finalizer]
    cluster.patch("widgets", "one", {"spec": {"busy": False}})
    cluster.wait_until_gone("widgets", "one")
    assert running.of("clean") == list(range(len(running.of("clean"))))


@pytest.mark.contract("engine 3.5")
def test_an_object_without_our_finalizer_is_not_handled_on_its_deletion(run, make, handled, cluster):
    running = run()
    make()
    handled()
    running.stop()
    cluster.patch("widgets", "one", {"metadata": {"finalizers": ["example.com/other"]}})
    cluster.delete("widgets", "one")
    second = run()
    second.settle()
    assert second.of("clean") == []
    cluster.patch("widgets", "one", {"metadata": {"finalizers": []}})
    cluster.wait_until_gone("widgets", "one")


@pytest.mark.parametrize("others", [["example.com/other"]])
def test_finalizers_of_others_are_left_alone(run, make, handled, cluster, finalizer, others):
    running = run()
    make(finalizers=others)
    assert sorted(handled()["metadata"]["finalizers"]) == sorted([*others, finalizer])
    cluster.delete("widgets", "one")
    body = cluster.wait_for("widgets", "one", lambda it: finalizer not in it["metadata"]["finalizers"])
    assert body["metadata"]["finalizers"] == others
    assert running.of("clean") == [0]
    cluster.patch("widgets", "one", {"metadata": {"finalizers": []}})
