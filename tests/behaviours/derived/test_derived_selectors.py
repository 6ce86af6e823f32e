"""Handlers are called the same if the label selector is applied by the API server or by the operator."""

import threading

import pytest


@pytest.fixture
def gate():
    """While it is closed, daemons do not stop."""
    gate = threading.Event()
    gate.set()
    yield gate
    gate.set()


@pytest.fixture(params=[False, True], ids=["by us", "by the server"])
def golden(request, run, make, handled, cluster, gate):
    """An operator that has handled a golden widget and a silver one."""
    make("silver", labels={"tier": "silver"})
    make("one", labels={"tier": "gold"})
    running = run({"derived": request.param, "gate": gate})
    running.until("guarded")
    running.until("made")
    handled("one", lambda body: body["metadata"].get("finalizers"))
    running.settle()
    return running


@pytest.fixture
def label(cluster):
    def label(name, tier, **more):
        cluster.patch("widgets", name, {"metadata": {"labels": {"tier": tier}}, **more})

    return label


def is_free(body):
    return not body["metadata"].get("finalizers")


def types(running, name):
    return [type for its, type, _ in running.of("seen") if its == name]


def test_deselected_objects_are_released_without_a_deletion(golden, label, make, cluster):
    before = types(golden, "one")
    label("one", "silver")
    golden.until("left")
    assert "FILTERS_MISMATCH" in golden.of("asked")[0][1]
    cluster.wait_for("widgets", "one", is_free)
    golden.settle()
    assert types(golden, "one") == before
    assert golden.of("unmade") == []
    # The index has dropped it.
    make("two", labels={"tier": "gold"})
    golden.until("made", 2)
    assert golden.of("seen")[-1][2] == ["two"]
    # It goes without being handled.
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one")
    cluster.delete("widgets", "two")
    cluster.wait_until_gone("widgets", "two")
    golden.until("left", 2)
    golden.settle()
    assert golden.of("unmade") == ["two"]
    assert "RESOURCE_DELETED" in golden.of("asked")[1][1]
    assert (types(golden, "one"), types(golden, "two")[-1]) == (before, "DELETED")
    assert types(golden, "silver") == []


def test_what_comes_back_is_handled_for_what_was_changed_meanwhile(golden, label, make, cluster):
    label("one", "silver")
    golden.until("left")
    cluster.wait_for("widgets", "one", is_free)
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    golden.settle()
    label("one", "gold", spec={"size": 3})
    golden.until("changed")
    golden.until("guarded", 2)
    cluster.wait_for("widgets", "one", lambda body: not is_free(body))
    assert (golden.of("changed"), golden.of("made")) == ([("one", 3)], ["one"])
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one")
    assert golden.of("unmade") == ["one"]


def test_what_becomes_gold_is_made(golden, label, cluster):
    label("silver", "gold")
    golden.until("made", 2)
    golden.until("guarded", 2)
    assert golden.of("made")[1] == "silver"
    cluster.wait_for("widgets", "silver", lambda body: not is_free(body))


def test_an_object_is_not_forgotten_before_its_daemon_has_left(golden, label, gate, cluster):
    gate.clear()
    label("one", "silver")
    golden.until("asked")
    golden.settle()
    # The first instance still runs: no second one is started.
    label("one", "gold")
    golden.settle()
    label("one", "silver")
    golden.settle()
    assert golden.of("guarded") == ["one"]
    gate.set()
    golden.until("left")
    cluster.wait_for("widgets", "one", is_free)
    label("one", "gold")
    golden.until("guarded", 2)


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize("derived", [False, True])
def test_the_label_selector_is_sent_if_enabled(run, make, cluster, derived, gate):
    make(labels={"tier": "gold"})
    running = run({"derived": derived, "gate": gate})
    running.until("made")
    asked = [it.query for it in cluster.requests if it.path.endswith("/widgets") and it.method == "GET"]
    watches = [query for query in asked if "watch=true" in query]
    assert watches and len(asked) > len(watches)
    # The first list precedes the watch.
    assert {"labelSelector=tier%3Dgold" in query for query in [asked[0], *watches]} == {derived}


@pytest.mark.kopf_embedded_only
def test_the_server_selects_nothing_if_one_handler_does_not(run, make, cluster):
    source = """if True:
        import kopf

        @kopf.on.startup()
        def configure(settings, **_):
            settings.watching.derived_selectors = True

        @kopf.on.event("widgets", labels={"tier": "gold"})
        def golden(**_):
            pass

        @kopf.on.event("widgets", annotations={"tier": "gold"})
        def seen(memo, name, **_):
            memo.calls.append(("seen", name))
    """
    make(annotations={"tier": "gold"})
    running = run(source=source)
    running.until("seen")
    asked = [it.query for it in cluster.requests if it.path.endswith("/widgets") and it.method == "GET"]
    assert asked and not any("labelSelector" in query for query in asked)
