"""Changes of the essence are handled; changes of system metadata are not."""

import pytest


def test_the_difference_is_that_since_the_last_handling(run, make, handled, cluster):
    running = run()
    make(spec={"size": 1, "colour": "red", "old": True})
    handled()
    cluster.patch("widgets", "one", {"spec": {"size": 2, "new": True, "old": None}})
    running.until("changed")
    [(diff, old, new)] = running.of("changed")
    assert sorted(diff) == [
        ("add", ("spec", "new"), None, True),
        ("change", ("spec", "size"), 1, 2),
        ("remove", ("spec", "old"), True, None),
    ]
    assert (old["size"], new["size"]) == (1, 2)


@pytest.mark.contract("api 3.5")
def test_labels_and_annotations_are_a_part_of_the_meaning(run, make, handled, cluster):
    running = run()
    make(labels={"a": "a"})
    handled()
    cluster.patch("widgets", "one", {"metadata": {"labels": {"a": "b"}}})
    running.until("changed")
    running.settle()
    [(diff, _, _)] = running.of("changed")
    assert diff == [("change", ("metadata", "labels", "a"), "a", "b")]


def test_the_status_is_nobodys_intent(run, make, handled, cluster):
    running = run()
    make()
    handled()
    cluster.patch("widgets", "one", {"status": {"phase": "Done"}}, subresource="status")
    running.settle()
    assert running.of("changed") == []


def test_changes_of_the_time_without_an_operator_are_one_change(run, make, handled, cluster):
    first = run()
    make(spec={"size": 1})
    handled()
    first.stop()
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    cluster.patch("widgets", "one", {"spec": {"size": 3}})
    second = run()
    second.until("changed")
    second.settle()
    [(diff, _, _)] = second.of("changed")
    assert diff == [("change", ("spec", "size"), 1, 3)]
