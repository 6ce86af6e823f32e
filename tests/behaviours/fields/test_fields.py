"""Field handlers get only the field, and are called when it changes."""

import threading

import pytest


def test_a_field_is_new_on_creation(run, make, handled):
    running = run()
    make(spec={"size": 1})
    handled()
    assert running.of("resized") == [(None, 1)]


@pytest.mark.contract("engine 5.5")
def test_only_changes_of_the_field_count(run, make, handled, cluster):
    running = run()
    make(spec={"size": 1, "colour": "red"})
    handled()
    cluster.patch("widgets", "one", {"spec": {"colour": "blue"}})
    running.settle()
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    running.until("resized", 2)
    running.settle()
    cluster.patch("widgets", "one", {"spec": {"size": None}})
    running.until("resized", 3)
    assert running.of("resized") == [(None, 1), (1, 2), (2, None)]
    assert running.of("grown") == [2]


@pytest.mark.contract("engine 5.4")
def test_values_choose_the_objects(run, make, handled):
    running = run()
    make("a", {"colour": "red"})
    make("b", {"colour": "blue"})
    make("c", {"size": 1})
    handled("a")
    handled("c")
    running.settle()
    assert running.of("red") == ["a"]


REVERSED = """
import kopf

@kopf.on.update("widgets")
def first(memo, **_):
    memo.calls.append(("first",))
    memo.gates["first"].wait(60)

@kopf.on.field("widgets", field="spec.size")
def resized(memo, old, new, **_):
    memo.calls.append(("resized", old, new))
    memo.gates["resized"].wait(60)

@kopf.on.update("widgets")
def last(memo, **_):
    memo.calls.append(("last",))
"""


def test_a_reversal_between_two_handlers_counts_although_another_field_has_changed(
    run, make, handled, cluster
):
    gates = {"first": threading.Event(), "resized": threading.Event()}
    gates["resized"].set()
    running = run(source=REVERSED, share={"gates": gates})
    make(spec={"size": 1})
    handled()
    gates["resized"].clear()
    cluster.patch("widgets", "one", {"spec": {"colour": "red"}})
    running.until("first")
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    gates["first"].set()
    running.until("resized", 2)
    cluster.patch("widgets", "one", {"spec": {"size": 1, "colour": "blue"}})
    gates["resized"].set()
    running.until("last")
    running.settle()
    assert running.of("resized") == [(None, 1), (1, 2), (2, 1)]
