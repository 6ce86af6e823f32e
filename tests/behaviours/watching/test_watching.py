"""Event handlers get all watch events, and store nothing on the object."""

import pytest

# On purpose: operators are not strict here.
HANDLERS_RAISE = True


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


METADATA = "kopf.on.event('widgets', metadata_only=True)(lambda memo, name, labels, spec, **_: "
METADATA += "memo.calls.append(('seen', name, dict(labels), dict(spec))))"


@pytest.mark.parametrize(
    ("others", "is_partial"),
    [
        ("", True),
        ("kopf.index('widgets', metadata_only=True)(lambda **_: None)", True),
        ("kopf.daemon('widgets', metadata_only=True)(lambda **_: None)", True),
        ("kopf.timer('widgets', metadata_only=True, interval=9)(lambda **_: None)", True),
        ("kopf.on.event('configmaps')(lambda **_: None)", True),
        ("kopf.on.event('widgets')(lambda **_: None)", False),
        ("kopf.timer('widgets', interval=9)(lambda **_: None)", False),
        ("kopf.on.update('widgets')(lambda **_: None)", False),
    ],
)
@pytest.mark.kopf_embedded_only
def test_only_metadata_is_requested_if_all_handlers_are_declared_so(run, make, cluster, others, is_partial):
    running = run(source=f"import kopf; {METADATA}; {others}")
    make("one", labels={"a": "b"})
    running.until("seen")
    assert running.of("seen")[0] == ("one", {"a": "b"}, {} if is_partial else {"size": 1})
    asked = [it.accept for it in cluster.requests if it.path.endswith("/widgets") and it.method == "GET"]
    assert {"PartialObjectMetadata" in accept for accept in asked} == {is_partial}


def test_objects_are_of_their_kind_even_if_only_their_metadata_come(run, make, cluster):
    running = run(
        source="""if True:
        import kopf

        @kopf.on.event("widgets", metadata_only=True)
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


def test_errors_are_not_retried_and_do_not_affect_other_handlers(run, make, cluster):
    running = run()
    make("broken")
    make("fine")
    running.until("seen", 2)
    running.settle()
    assert sorted(name for _, name in running.of("seen")) == ["broken", "fine"]
