"""An object is deleted and created again while its handler runs: its outcome is not for the second object."""

import threading

import pytest

RECORD = "kopf.zalando.org/create"


@pytest.fixture
def replace(run, make, cluster):
    """Replaces a widget while its handler runs; returns the operator, and the event that ends the handler."""

    def replaced():
        proceed = threading.Event()
        running = run(share={"proceed": proceed})
        make(spec={"number": 1})
        running.until("create")
        cluster.delete("widgets", "one")
        make(spec={"number": 2})
        return running, proceed

    return replaced


def test_the_second_object_is_handled_from_the_start(replace, handled, cluster, caplog):
    running, proceed = replace()
    running.until("create", 2)
    cluster.wait_for("widgets", "one", lambda it: RECORD in it["metadata"].get("annotations", {}))
    proceed.set()
    running.until("created", 2)
    body = handled()
    running.settle()
    assert running.of("create") == [(1, 0), (2, 0), (2, 1)]
    assert running.of("created") == [1, 2]
    assert body["status"] == {"by-2": True, "create": {"number": 2}}
    assert body["metadata"]["labels"] == {"created-by": "2"}
    assert not [record for record in caplog.records if "superseded" in record.getMessage()]


@pytest.mark.kopf_embedded_only
def test_nothing_is_written_by_the_first_handler_before_the_deletion_is_received(run, make, handled, cluster):
    proceed = threading.Event()
    running = run(share={"proceed": proceed})
    make(spec={"number": 1})
    running.until("create")
    cluster.inject("silence", resource="widgets")
    cluster.delete("widgets", "one")
    make(spec={"number": 2})
    proceed.set()
    running.settle()
    patches = [it for it in cluster.requests if it.method == "PATCH" and "/widgets/one" in it.path]
    assert [it.code for it in patches] == [409]
    body = cluster.get("widgets", "one")
    assert "status" not in body and "labels" not in body["metadata"]
    cluster.clear_faults()
    cluster.drop_watches("widgets")
    running.until("created", 2)
    assert handled()["status"] == {"by-2": True, "create": {"number": 2}}
    assert running.of("create") == [(1, 0), (2, 0), (2, 1)]


REPLACING = """
import kopf

@kopf.on.create("widgets")
@kopf.on.update("widgets", field="spec.size")
def handle(memo, spec, reason, patch, **_):
    memo.calls.append((reason, spec["number"]))
    if reason == memo.when and spec["number"] == 1:
        memo.replace()
    patch.status[f"{reason}-{spec['number']}"] = True
    return {"number": spec["number"]}
"""


@pytest.mark.parametrize("when", ["create", "update"])
def test_a_handler_writes_nothing_into_an_object_that_it_has_created_in_place_of_its_own(
    run, make, cluster, handled, when
):
    def replace():
        cluster.delete("widgets", "one")
        make(spec={"number": 2, "size": 1})

    running = run(source=REPLACING, share={"replace": replace, "when": when})
    make(spec={"number": 1, "size": 1})
    if when == "update":
        handled()
        cluster.patch("widgets", "one", {"spec": {"size": 2}})
    running.until("create", 2)
    body = handled("one", lambda it: it["spec"]["number"] == 2)
    running.settle()
    assert body["status"] == {"create-2": True, "handle": {"number": 2}}
    assert running.of("create") == [1, 2]
