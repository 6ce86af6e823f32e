"""Failures of declared functions are logged once per object."""

from kopf._runtime import repeated_failures
from kopf._runtime.repeated_failures import RepeatedFailures


def test_a_failure_is_new_until_it_is_over():
    failures = RepeatedFailures()
    assert [failures.add("one"), failures.add("one"), failures.add("two")] == [True, False, True]
    failures.discard("one")
    failures.discard("three")
    assert [failures.add("one"), failures.add("two")] == [True, False]


def test_the_oldest_failures_are_forgotten(monkeypatch):
    monkeypatch.setattr(repeated_failures, "MAX_FAILURES", 2)
    failures = RepeatedFailures()
    for name in ("one", "two", "three"):
        failures.add(name)
    assert [failures.add("three"), failures.add("two"), failures.add("one")] == [False, False, True]
