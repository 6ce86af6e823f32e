"""Handlers of events see what comes, and leave no traces."""


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


def test_errors_are_not_retried_and_hurt_nobody(run, make, cluster):
    running = run()
    make("broken")
    make("fine")
    running.until("seen", 2)
    running.settle()
    assert sorted(name for _, name in running.of("seen")) == ["broken", "fine"]
