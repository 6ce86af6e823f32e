"""The creation of objects is handled once by every handler, and results are stored in the status."""

import json

import kopf
import pytest


def test_each_handler_is_called_once_with_the_object(run, make, handled, cluster):
    running = run()
    make(spec={"size": 5})
    handled()
    running.settle()
    [call] = running.of("first")
    assert call == {"spec": {"size": 5}, "name": "one", "namespace": cluster.namespace, "retry": 0}
    assert len(running.of("second")) == 1


@pytest.mark.contract("engine 7.6")
def test_results_are_in_the_status_under_the_names_of_the_handlers(run, make, handled):
    run()
    make(spec={"size": 5})
    assert handled()["status"]["first"] == {"seen": 5}
    assert "second" not in handled()["status"]


def test_what_was_handled_is_kept_with_the_object(run, make, handled, last_key):
    run()
    make(spec={"size": 5})
    last = json.loads(handled()["metadata"]["annotations"][last_key])
    assert last["spec"] == {"size": 5}


@pytest.mark.contract("engine 2.3")
def test_our_own_writes_are_no_updates(run, make, handled):
    running = run()
    make()
    handled()
    running.settle()
    assert running.of("changed") == []


def test_deletion_is_immediate_without_deletion_handlers(run, make, handled, cluster):
    run()
    make()
    assert "finalizers" not in handled()["metadata"]
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one")


def test_objects_from_before_the_operator_are_created_for_it(run, make, handled):
    make("early")
    running = run()
    handled("early")
    assert [call["name"] for call in running.of("first")] == ["early"]


def test_removing_the_diffbase_causes_a_creation_in_compatible_mode(run, make, handled, cluster, last_key):
    settings = kopf.OperatorSettings()
    settings.process.compat = "1.45"
    running = run(settings=settings)
    make()
    handled()
    cluster.patch("widgets", "one", {"metadata": {"annotations": {last_key: None}}})
    running.until("first", 2)
    handled()


@pytest.mark.contract("engine 2.1")
def test_objects_with_equal_names_are_distinguished_by_uid(run, make, handled, cluster):
    running = run()
    make(spec={"size": 1})
    handled()
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one")
    make(spec={"size": 2})
    handled()
    assert [call["spec"]["size"] for call in running.of("first")] == [1, 2]
