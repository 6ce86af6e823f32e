"""Handlers of events see what comes, and leave no traces."""

import pytest


def test_all_types_of_events_come(run, make, cluster):
    make("early")
    running = run()
    running.until("seen")
    make("late")
    running.until("seen", 2)
    cluster.patch("widgets", "late", {"spec": {"size": 2}})
    running.until("seen", 3)
    cluster.delete("widgets", "late")
    running.until("seen", 4)
    assert running.of("seen") == [
        (None, "early"),
        ("ADDED", "late"),
        ("MODIFIED", "late"),
        ("DELETED", "late"),
    ]


def test_nothing_is_written_to_the_objects(run, make, cluster):
    running = run()
    version = make()["metadata"]["resourceVersion"]
    running.until("seen")
    running.settle()
    assert cluster.get("widgets", "one")["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize(
    ("handler", "is_partial"),
    [
        ("lambda memo, name, labels, **_: memo.calls.append(('seen', name, dict(labels)))", True),
        ("lambda memo, name, meta, **_: memo.calls.append(('seen', name, dict(meta.labels)))", True),
        (
            "lambda memo, name, body, **_: memo.calls.append(('seen', name, dict(body.metadata.labels)))",
            False,
        ),
        (
            "lambda **kwargs: kwargs['memo'].calls.append(('seen', kwargs['name'], dict(kwargs['labels'])))",
            False,
        ),
    ],
)
@pytest.mark.kopf_embedded_only
def test_no_more_than_what_is_seen_is_asked_for(run, make, cluster, handler, is_partial):
    running = run(source=f"import kopf; kopf.on.event('widgets')({handler})")
    make("one", labels={"a": "b"})
    running.until("seen")
    assert running.of("seen") == [("one", {"a": "b"})]
    asked = [it.accept for it in cluster.requests if it.path.endswith("/widgets") and it.method == "GET"]
    assert {"PartialObjectMetadata" in accept for accept in asked} == {is_partial}


def test_objects_are_of_their_kind_even_if_only_their_metadata_come(run, make, cluster):
    running = run(
        source="""if True:
        import kopf

        @kopf.on.event("widgets")
        def seen(memo, name, **_):
            child = {}
            kopf.adopt(child)
            [owner] = child["metadata"]["ownerReferences"]
            memo.calls.append(("seen", owner["apiVersion"], owner["kind"], owner["name"] == name))
        """
    )
    make("one")
    running.until("seen")
    assert running.of("seen") == [("behaviours.example.com/v1", "Widget", True)]


def test_errors_are_not_retried_and_hurt_nobody(run, make, cluster):
    running = run()
    make("broken")
    make("fine")
    running.until("seen", 2)
    running.settle()
    assert sorted(name for _, name in running.of("seen")) == ["broken", "fine"]
