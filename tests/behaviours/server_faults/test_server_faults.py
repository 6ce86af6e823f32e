"""With any fault of the API server, handlers are called with the last state, and no needless requests are
sent."""

import kopf
import pytest

pytestmark = pytest.mark.kopf_embedded_only


def ours(cluster, method):
    return [it for it in cluster.requests if it.method == method and "/widgets" in it.path]


@pytest.mark.contract("engine 8.3", "api D")
@pytest.mark.parametrize("compat, order", [(None, ["status", "one"]), ("1.45", ["one", "status"])])
def test_one_handling_is_two_requests_with_a_status_and_the_last_has_the_annotations(
    run, make, handled, cluster, compat, order
):
    settings = kopf.OperatorSettings()
    settings.process.compat = compat
    running = run(settings=settings)
    make()
    handled(condition={"status": {"handle": {"size": 1}}})
    running.settle()
    requests = {it.path.rpartition("/")[2]: it for it in ours(cluster, "PATCH")}
    assert list(requests) == order
    assert [it.code for it in requests.values()] == [200, 200]
    assert list(requests["status"].json["status"]) == ["handle"]
    assert "annotations" in requests["one"].json["metadata"]


@pytest.mark.contract("engine 8.4")
@pytest.mark.parametrize("fault, number", [("code", 500), ("too-many-requests", 0), ("reset", 0)])
def test_rejected_writes_are_repeated(run, make, handled, cluster, fault, number):
    running = run()
    cluster.inject(fault, number, verb="patch", resource="widgets", times=2)
    make()
    handled(condition={"status": {"handle": {"size": 1}}})
    running.settle()
    assert running.of("handle") == [1]


def test_a_conflict_leads_to_another_look(run, make, handled, cluster):
    run()
    cluster.inject("conflict", verb="patch", resource="widgets", times=1)
    make()
    handled(condition={"status": {"handle": {"size": 1}}})


def test_cut_watches_lose_nothing(run, make, handled, cluster):
    running = run()
    make()
    handled()
    for size in (2, 3, 4):
        cluster.drop_watches()
        cluster.patch("widgets", "one", {"spec": {"size": size}})
        cluster.wait_for("widgets", "one", {"status": {"handle": {"size": size}}})
    assert running.of("handle")[-1] == 4


@pytest.mark.contract("observed 9")
def test_a_forgotten_history_leads_to_a_new_listing(run, make, handled, cluster):
    run()
    make()
    handled(condition={"status": {"handle": {"size": 1}}})
    cluster.inject("silence", resource="widgets")
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    cluster.compact()
    cluster.clear_faults()
    cluster.drop_watches("widgets")
    cluster.wait_for("widgets", "one", {"status": {"handle": {"size": 2}}})


def test_handled_objects_are_not_written_after_a_restart(run, make, handled, cluster):
    first = run()
    make()
    handled()
    first.settle()
    first.stop()
    cluster.clear_requests()
    run().settle()
    assert ours(cluster, "PATCH") == []
    assert ours(cluster, "GET") != []
