"""Fixtures of the cache tests: ConfigMaps, and a function that runs in a handler."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest


def config_map(name: str, data: Any = None, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}, "data": data or {}}


@pytest.fixture
def create(cluster) -> Callable[..., dict[str, Any]]:
    """Creates a ConfigMap."""

    def create_config_map(name: str, data: Any = None, **meta: Any) -> dict[str, Any]:
        return cluster.create(config_map(name, data, **meta))

    return create_config_map


@pytest.fixture
def reads(cluster) -> Callable[..., list[Any]]:
    """The lists and watches of a resource in the request log."""

    def of(plural: str) -> list[Any]:
        return [one for one in cluster.requests if one.method == "GET" and one.path.endswith(f"/{plural}")]

    return of


def wait_until(condition: Callable[[], Any], timeout: float = 30) -> Any:
    """Wait until the condition holds; `LookupError` counts as not."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(LookupError):
            if found := condition():
                return found
        assert time.monotonic() < deadline, "This has not happened in time."
        pause.wait(0.02)


def wait_ready(*caches: Any) -> None:
    """Wait until the operator is running, and its caches are filled."""
    for cache in caches:
        wait_until(lambda cache=cache: cache.is_ready)
