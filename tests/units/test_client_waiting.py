"""The state of `wait_for`: what counts as the awaited object, and what as its absence."""

import kopf
import pytest
from kopf import client
from kopf._runtime.client.waiting import Wait


def body(uid, **spec):
    return kopf.Body({"metadata": {"name": "x", "uid": uid}, "spec": spec})


def change(type, body):
    return kopf.ChangeEvent(type, body, None)


def wait(condition, uid=None):
    return Wait("widgets", "x", condition, 1, uid)


NEVER = client.field("spec.x", "never")
GONE = {
    "alone": client.gone,
    "any_": kopf.any_([NEVER, client.gone]),
    "all_": kopf.all_([client.gone, kopf.not_(NEVER)]),
    "not_": kopf.not_(client.exists),
    "nested": kopf.any_([NEVER, kopf.all_([kopf.not_(kopf.none_([client.gone]))])]),
    "function": lambda body: body is None,
}


@pytest.mark.parametrize("condition", GONE.values(), ids=GONE)
def test_an_absent_and_a_replaced_object_are_gone(condition):
    assert wait(condition).update(None)
    deleted = wait(condition)
    assert not deleted.update(body("1"))
    assert deleted.receive(change("DELETED", body("1")))
    replaced = wait(condition)
    assert not replaced.update(body("1"))
    assert not replaced.receive(change("MODIFIED", body("1")))
    assert replaced.receive(change("ADDED", body("2")))
    assert replaced.body is None


def test_other_conditions_hold_for_the_new_object():
    replaced = wait(kopf.any_([client.field("spec.x", 1), client.field("spec.x", 2)]))
    assert not replaced.update(body("1"))
    assert not replaced.receive(change("ADDED", body("2", x=3)))
    # A listing delivers the new object before the deletion of the old one.
    assert not replaced.receive(change("DELETED", body("1")))
    assert replaced.body == body("2", x=3)
    assert replaced.receive(change("MODIFIED", body("2", x=2)))
    assert replaced.body == body("2", x=2)


def test_another_object_than_that_of_the_uid_counts_as_none():
    identified = wait(client.exists, uid="1")
    assert not identified.update(body("2"))
    assert not identified.receive(change("DELETED", body("2")))
    assert identified.receive(change("ADDED", body("1")))
    assert wait(client.gone, uid="1").update(body("2"))


def test_the_timeout_is_that_of_the_read_and_of_the_watch_together():
    begun = Wait("widgets", "x", client.exists, 3600, None)
    rest = begun.rest
    assert 0 < begun.rest <= rest <= 3600
    assert Wait("widgets", "x", client.exists, 0, None).rest == 0
    assert Wait("widgets", "x", client.exists, None, None).rest is None
