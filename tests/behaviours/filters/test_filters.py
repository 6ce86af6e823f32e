"""Handlers are called for objects that match all of their filters."""

import pytest


@pytest.mark.contract("engine 5.3", "api 2.6")
def test_each_filter_chooses_its_objects(run, make, handled, last_key):
    running = run()
    make("a", {"size": 1}, labels={"team": "red"})
    make("b", {"size": 20}, labels={"team": "green"})
    make("c", {"size": 11}, annotations={"example.com/note": "yes"})
    make("d", {"size": 20}, labels={"team": "blue"}, annotations={"example.com/note": "no"})
    for name in "abcd":
        handled(name)
    running.settle()
    names = ("labelled", "red_team", "teamless", "called", "annotated", "big", "both", "sized")
    names += ("above", "never")
    chosen = {name: "".join(sorted(running.of(name))) for name in names}
    assert chosen == {
        "labelled": "abd",
        "red_team": "a",
        "teamless": "c",
        "called": "ad",
        "annotated": "c",
        "big": "bcd",
        "both": "b",
        "sized": "bd",
        "above": "bd",
        "never": "",
    }


COUNTED = """
import kopf

def is_chosen(memo, name, **_):
    memo.calls.append(("is_chosen", name))
    return True

@kopf.on.create("widgets", when=is_chosen)
def create(memo, name, **_):
    memo.calls.append(("create", name))
"""


def test_a_filter_is_called_once_for_the_decision_that_calls_its_handler(run, make, handled):
    running = run(source=COUNTED)
    make("a")
    handled("a")
    running.settle()
    assert running.of("create") == ["a"]
    assert running.of("is_chosen") == ["a"]
