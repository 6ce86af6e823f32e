"""Changes while the handlers of an earlier change run: each handler gets each change once."""

import threading

import pytest

NOTE = "example.com/note"
LARGE = 200_000
HANDLERS = """
import kopf

def short(essence):
    if essence is None:
        return None
    note = essence.get("metadata", {}).get("annotations", {}).get("example.com/note")
    return essence["spec"]["size"], note and note[0]

@kopf.on.create("widgets", id="first")
@kopf.on.update("widgets", id="first")
def first(memo, old, new, **_):
    memo.calls.append(("first", short(old), short(new)))
    memo.gate.acquire(timeout=60)

@kopf.on.create("widgets", id="second")
@kopf.on.update("widgets", id="second")
def second(memo, old, new, **_):
    memo.calls.append(("second", short(old), short(new)))
"""


@pytest.fixture
def gate():
    """Each call of the first handler passes it once."""
    return threading.Semaphore(0)


@pytest.fixture
def running(run, gate):
    return run(source=HANDLERS, share={"gate": gate})


@pytest.fixture
def annotate(cluster):
    def set_note(letter, length):
        patch = {"metadata": {"annotations": {NOTE: letter * length}}}
        cluster.patch("widgets", "one", patch)

    return set_note


@pytest.mark.parametrize("length", [1, LARGE])
def test_handlers_get_each_change_once_although_its_spec_may_be_the_same(
    running, gate, make, handled, annotate, cluster, length
):
    make(spec={"size": 1})
    running.until("first")
    annotate("a", length)
    gate.release()
    running.until("first", 2)
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    gate.release(10)
    running.until("second", 3)
    handled()
    running.settle()
    assert running.of("first") == [
        (None, (1, None)),
        ((1, None), (1, "a")),
        ((1, "a"), (2, "a")),
    ]
    # The spec of the last two is the same before and after; the annotation before is not.
    assert running.of("second") == [
        (None, (1, "a")),
        ((1, None), (2, "a")),
        ((1, "a"), (2, "a")),
    ]


def test_two_changes_of_a_field_without_its_old_value_look_the_same(running, gate, make, handled, annotate):
    # The last handled state contains only a digest of the note: a changed one has no old value.
    make(spec={"size": 1}, annotations={NOTE: "a" * LARGE})
    gate.release()
    handled()
    annotate("b", LARGE)
    running.until("first", 2)
    annotate("c", LARGE)
    gate.release(10)
    running.until("second", 3)
    handled()
    running.settle()
    assert running.of("first") == [(None, (1, "a")), ((1, None), (1, "b")), ((1, None), (1, "c"))]
    assert running.of("second") == [(None, (1, "a")), ((1, None), (1, "c")), ((1, None), (1, "c"))]
