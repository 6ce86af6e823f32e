"""Without a registry of packages, these tests are skipped with a reason; in CI, they fail."""

import pytest

from tests.support import registry

ERRORS = "WARNING: Retrying\nERROR: No matching distribution found for click"
REASON = "There is no registry of packages: ERROR: No matching distribution found for click"


def test_its_absence_fails_in_ci():
    with pytest.raises(pytest.fail.Exception, match=REASON):
        registry.check_registry(ERRORS, {"CI": "true"})


def test_its_absence_is_reported_elsewhere():
    with pytest.raises(pytest.skip.Exception, match=REASON):
        registry.check_registry(ERRORS, {})


def test_other_errors_of_pip_are_for_the_caller():
    registry.check_registry("ERROR: Invalid requirement", {"CI": "true"})
