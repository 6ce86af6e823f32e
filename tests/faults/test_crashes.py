"""An operator may die at any moment: before and after every request, and whenever a handler returns.

The moments are not guessed: a run without deaths shows them. `KOPF_CRASHES=all` explores each with more variations
(`make crash`); without it, some variations alternate.
"""

import os

import pytest
from lives import explore, points
from scenarios import SCENARIOS

AT_LENGTH = os.environ.get("KOPF_CRASHES") == "all"


@pytest.mark.kopf_embedded_only
@pytest.mark.timeout(600 if AT_LENGTH else 120)
@pytest.mark.parametrize("title", SCENARIOS)
def test_nothing_is_lost_by_dying(title):
    scenario = SCENARIOS[title]
    found, calm = points(scenario, at_length=AT_LENGTH)
    assert len(found) > 5
    wrong = []
    for number, point in enumerate(found):
        for absent in (False, True) if AT_LENGTH else (bool(number % 2),):
            wrong += explore(scenario, point, calm, absent=absent)
    print(f"{title}: {len(found)} points")
    assert wrong == []
