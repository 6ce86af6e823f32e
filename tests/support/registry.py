"""What tests need from outside: without it, they are skipped with a reason; in CI, they fail."""

import os
from collections.abc import Mapping
from typing import NoReturn

import pytest

MISSING = "No matching distribution found"
"""What pip prints if it cannot reach a registry."""


def unavailable(reason: str, environment: Mapping[str, str] = os.environ) -> NoReturn:
    """End the test: a pipeline with CI=true must have everything."""
    if environment.get("CI") == "true":
        pytest.fail(f"CI=true, but: {reason}", pytrace=False)
    pytest.skip(reason)


def check_registry(errors: str, environment: Mapping[str, str] = os.environ) -> None:
    """End the test if pip has failed without a registry, according to its output."""
    if MISSING in errors:
        unavailable(f"There is no registry of packages: {errors.splitlines()[-1]}", environment)
