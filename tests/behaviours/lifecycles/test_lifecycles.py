"""The lifecycle chooses the handlers of one step; in the end, all of them have run once."""

import kopf
import pytest


def called(running):
    return {name: running.of(name) for name in "abc"}


@pytest.mark.contract("api 1.6")
def test_all_at_once_is_one_step(run, make, handled):
    running = run(lifecycle=kopf.lifecycles.all_at_once)
    make()
    handled()
    calls = called(running)
    assert len({version for versions in calls.values() for version in versions}) == 1


@pytest.mark.parametrize("name", ["one_by_one", "asap", "randomized"])
def test_one_at_a_time_is_one_step_each(run, make, handled, name):
    running = run(lifecycle=getattr(kopf.lifecycles, name))
    make()
    handled()
    running.settle()
    calls = called(running)
    assert all(len(versions) == 1 for versions in calls.values()), calls
    assert len({version for versions in calls.values() for version in versions}) == 3


@pytest.mark.contract("engine 6.4")
def test_a_lifecycle_can_be_any_function(run, make, handled):
    def backwards(handlers, **_):
        return list(handlers)[-1:]

    running = run(lifecycle=backwards)
    make()
    handled()
    versions = {int(versions[0]): name for name, versions in called(running).items()}
    assert [versions[version] for version in sorted(versions)] == ["c", "b", "a"]


@pytest.mark.contract("engine 6.4")
def test_the_state_has_the_progress_of_all_handlers(run, make, handled):
    steps = []

    def forwards(handlers, *, state, **_):
        if handlers:  # it is also called for the sub-handlers of each, of which there are none
            steps.append({str(id): (one.retries, one.success, one.purpose) for id, one in state.items()})
        return handlers[:1]

    run(lifecycle=forwards)
    make()
    handled()
    new, done = (0, False, "create"), (1, True, "create")
    assert steps == [
        {"a": new, "b": new, "c": new},
        {"a": done, "b": new, "c": new},
        {"a": done, "b": done, "c": new},
    ]
