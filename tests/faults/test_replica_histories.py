"""The check of the history of replicas finds each violation that it is for."""

from types import SimpleNamespace

import pytest
from replicas import Step, violations_of


def led(user, term):
    """An acquisition, or a renewal."""
    spec = {"holderIdentity": user, "leaseTransitions": term}
    return SimpleNamespace(user=user, path="/leases/parcels-operator", json={"spec": spec})


def wrote(user, name, number, term):
    status = {"handle": number, "term": term}
    return SimpleNamespace(user=user, path=f"/parcels/{name}/status", json={"status": status})


def recorded(user, name):
    """The progress of a handler, or the state that was handled last."""
    return SimpleNamespace(user=user, path=f"/parcels/{name}", json={"metadata": {"annotations": {}}})


def steps(*all_steps):
    """Steps of the handler for the object `x`."""
    return [
        Step(float(at), identity, term, what, "handle", "x", number)
        for at, (identity, term, what, number) in enumerate(all_steps)
    ]


LEASES = [led("a", 0), led("a", 0), led("b", 1)]
CALLS = [
    ("a", 0, "begin", 0),
    ("a", 0, "begin", 0),
    ("a", 0, "end", 0),
    ("b", 1, "begin", 1),
    ("b", 1, "end", 1),
]


def test_a_correct_history_has_no_violations():
    requests = [led("a", 0), wrote("a", "x", 0, 0), led("b", 1), wrote("b", "x", 1, 1)]
    assert violations_of(requests, steps(*CALLS)) == []
    # A call without an accepted outcome is repeated.
    again = steps(("a", 0, "begin", 0), ("a", 0, "end", 0), ("b", 1, "begin", 0))
    assert violations_of(LEASES, again) == []
    # So is one whose status is written, but not its progress.
    assert violations_of([led("a", 0), wrote("a", "x", 0, 0), led("b", 1)], again) == []


@pytest.mark.parametrize(
    "requests, calls, text",
    [
        ([led("a", 0), led("b", 0)], [], "the term 0 has two holders: a and b"),
        ([led("a", 1), led("a", 0)], [], "the term 0 of a was written after the term 1"),
        ([led("a", 0), led("b", 1), wrote("b", "x", 1, 1), wrote("a", "x", 0, 0)], [], "a has written x"),
        (LEASES, [("b", 1, "begin", 1), ("a", 0, "begin", 2)], "after a call in the term 1"),
        (
            [led("a", 0), wrote("a", "x", 0, 0), recorded("a", "x"), led("b", 1)],
            [("b", 1, "begin", 0)],
            "written in 0",
        ),
        (LEASES, [("a", 0, "end", 0), ("a", 0, "end", 0)], "has ended 2 times"),
    ],
)
def test_a_violation_is_found(requests, calls, text):
    [found] = violations_of(requests, steps(*calls))
    assert text in found
