"""The type of an error decides if there is another attempt."""

import pytest

# On purpose: operators are not strict here.
HANDLERS_RAISE = True


@pytest.mark.contract("api 2.2")
@pytest.mark.parametrize(
    "fails, attempts",
    [("never", 1), ("temporarily", 3), ("permanently", 1), ("arbitrarily", 2), ("always", 5)],
)
def test_the_number_of_attempts_depends_on_the_error(run, make, handled, fails, attempts):
    running = run()
    make(spec={"fails": fails})
    succeeds = fails in ("never", "temporarily", "arbitrarily")
    handled(condition={"status": {"plain": {"attempts": attempts}}} if succeeds else None)
    running.settle()
    assert running.of("plain") == list(range(attempts))


def test_ignored_and_permanent_errors_are_not_retried(run, make, handled):
    running = run()
    make()
    handled()
    assert (running.of("careless"), running.of("strict")) == ([None], [None])


@pytest.mark.contract("engine 7.8")
@pytest.mark.kopf_embedded_only
def test_the_timeout_counts_from_the_first_attempt(run, make, handled, cluster):
    cluster.freeze()
    running = run()
    make(spec={"fails": "for long"})
    cluster.advance(399)
    assert running.of("limited") == [0, 1]
    cluster.advance(1)
    handled()
    cluster.advance(1000)
    assert running.of("limited") == [0, 1]


def test_the_progress_is_on_the_object_and_a_new_operator_goes_on_from_there(run, make, handled):
    first = run()
    make(spec={"fails": "arbitrarily"})
    first.until("plain")
    first.stop()
    second = run()
    handled()
    assert [*first.of("plain"), *second.of("plain")] == [0, 1]
    assert (first.of("strict") + second.of("strict")) == [None]
