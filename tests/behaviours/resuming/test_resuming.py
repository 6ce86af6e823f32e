"""Objects that were there before the operator are resumed once per operator."""

import pytest


def test_what_was_handled_by_the_previous_operator_is_resumed_once(run, make, handled, cluster):
    first = run()
    make()
    handled()
    first.stop()
    second = run()
    second.until("resumed")
    second.settle()
    assert second.of("resumed") == ["one"]
    assert second.of("created") == []
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    second.until("both", 2)
    assert second.of("resumed") == ["one"]


def test_what_comes_later_is_not_resumed(run, make, handled):
    running = run()
    make("late")
    handled("late")
    running.settle()
    assert running.of("resumed") == []
    assert running.of("created") == ["late"]


@pytest.mark.contract("engine 3.3")
def test_a_function_for_a_change_and_for_resuming_is_called_once_for_both(run, make, handled, cluster):
    first = run()
    make()
    handled()
    first.stop()
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    second = run()
    second.until("both")
    second.settle()
    assert second.of("both") == ["one"]
