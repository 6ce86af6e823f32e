"""Changes in a handler's patch are written to the object, together with Kopf's own changes."""


def test_stanzas_are_merged(run, make, handled):
    run()
    make(spec={"size": 1, "other": 2}, labels={"way": "fields"})
    body = handled(condition={"status": {"phase": "Ready"}})
    assert body["spec"] == {"size": 100, "other": 2}
    assert body["metadata"]["labels"] == {"way": "fields", "patched": "yes"}
    assert body["metadata"]["annotations"]["example.com/note"] == "hello"


def test_functions_see_and_change_the_newest_state(run, make, handled):
    run()
    make(spec={"items": [1, 2]}, labels={"way": "function"})
    handled(condition={"spec": {"items": [1, 2, 3]}})


def test_handlers_of_events_can_patch_too(run, make, cluster):
    run()
    make(labels={"way": "event"})
    cluster.wait_for("widgets", "one", {"status": {"events": 1}})
