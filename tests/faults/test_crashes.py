"""An operator may die at any moment: before and after every request, and whenever a handler returns.

The moments are not guessed: a run without deaths shows them. Here, one of a few is tried; `make crash` tries
all.
"""

import dataclasses
from typing import Any

import kopf
import pytest
from crash_runs import explore, points
from scenarios import SCENARIOS

EACH = 4
"""Of so many points, one is tried."""


@pytest.mark.kopf_embedded_only
@pytest.mark.timeout(300)
@pytest.mark.parametrize("title", SCENARIOS)
def test_nothing_is_lost_by_dying(title):
    scenario = SCENARIOS[title]
    found, calm = points(scenario)
    assert len(found) > 10
    tried = found[len(title) % EACH :: EACH]
    results = [explore(scenario, it, calm, absent=bool(number % 2)) for number, it in enumerate(tried)]
    assert [it for wrong, _ in results for it in wrong] == []
    assert sum(happened for _, happened in results) > len(tried) / 2


class ForgetfulProgress(kopf.AnnotationsProgressStorage):
    """The records are on the object, but only those are believed that are in memory."""

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
    """The same for the last handled state."""

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
def test_a_storage_that_forgets_is_found_out_by_a_death_only(flaw):
    scenario = dataclasses.replace(SCENARIOS["update"], settings=flaw)
    found, calm = points(scenario)
    wrong: list[str] = []
    for point in [it for it in found if "killed" in it.mode and it.what == "patch"]:
        wrong += explore(scenario, point, calm)[0]
    assert any("called again" in it for it in wrong), wrong
