"""Field handlers get only the field, and are called when it changes."""


def test_a_field_is_new_on_creation(run, make, handled):
    running = run()
    make(spec={"size": 1})
    handled()
    assert running.of("resized") == [(None, 1)]


def test_only_changes_of_the_field_count(run, make, handled, cluster):
    running = run()
    make(spec={"size": 1, "colour": "red"})
    handled()
    cluster.patch("widgets", "one", {"spec": {"colour": "blue"}})
    running.settle()
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    running.until("resized", 2)
    running.settle()
    cluster.patch("widgets", "one", {"spec": {"size": None}})
    running.until("resized", 3)
    assert running.of("resized") == [(None, 1), (1, 2), (2, None)]
    assert running.of("grown") == [2]


def test_values_choose_the_objects(run, make, handled):
    running = run()
    make("a", {"colour": "red"})
    make("b", {"colour": "blue"})
    make("c", {"size": 1})
    handled("a")
    handled("c")
    running.settle()
    assert running.of("red") == ["a"]
