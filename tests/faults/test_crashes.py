"""An operator may crash at any point: before and after every request, and when a handler returns.

A run without a crash yields the points. These tests run a sample of them; `make crash` runs all.
"""

import dataclasses
from typing import Any

import kopf
import pytest

from tests.faults.crash_runs import explore, points
from tests.faults.scenarios import SCENARIOS

EACH = 8
"""One of this many points is tested."""


@pytest.mark.kopf_embedded_only
@pytest.mark.timeout(300)
@pytest.mark.parametrize("title", SCENARIOS)
def test_nothing_is_lost_by_a_crash(title):
    scenario = SCENARIOS[title]
    found, baseline = points(scenario)
    assert len(found) > 10
    tried = found[len(title) % EACH :: EACH]
    results = [explore(scenario, it, baseline, absent=bool(number % 2)) for number, it in enumerate(tried)]
    assert [it for wrong, _ in results for it in wrong] == []
    assert sum(happened for _, happened in results) > len(tried) / 2


class ForgetfulProgress(kopf.AnnotationsProgressStorage):
    """A storage that writes records to the object, but reads them only from memory."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Any] = {}

    def fetch(self, *, key: Any, body: Any) -> Any:
        return self.known.get(key)

    def store(self, *, key: Any, record: Any, body: Any, patch: Any) -> None:
        super().store(key=key, record=record, body=body, patch=patch)
        self.known[key] = record

    def purge(self, *, key: Any, body: Any, patch: Any) -> None:
        super().purge(key=key, body=body, patch=patch)
        self.known.pop(key, None)


class ForgetfulDiffBase(kopf.AnnotationsDiffBaseStorage):
    """The same for the diff-base."""

    def __init__(self) -> None:
        super().__init__()
        self.known: Any = None

    def fetch(self, *, body: Any) -> Any:
        return self.known

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        super().store(body=body, patch=patch, essence=essence)
        self.known = essence


def with_forgetful_progress(settings: kopf.OperatorSettings) -> None:
    settings.persistence.progress_storage = ForgetfulProgress()


def with_forgetful_diffbase(settings: kopf.OperatorSettings) -> None:
    settings.persistence.diffbase_storage = ForgetfulDiffBase()


@pytest.mark.kopf_embedded_only
@pytest.mark.timeout(300)
@pytest.mark.parametrize("flaw", [with_forgetful_progress, with_forgetful_diffbase])
def test_a_forgetful_storage_is_detected_only_by_a_crash(flaw):
    scenario = dataclasses.replace(SCENARIOS["update"], settings=flaw)
    found, baseline = points(scenario)
    wrong: list[str] = []
    for point in [it for it in found if "killed" in it.mode and it.what == "patch"]:
        wrong += explore(scenario, point, baseline)[0]
    assert any("called again" in it for it in wrong), wrong
