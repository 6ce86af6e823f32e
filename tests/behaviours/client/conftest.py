"""Fixtures of the tests of the API client, in blocking and in asynchronous form."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"x": "1"}}


class Caller:
    """The methods of the client of a cluster. Asynchronous ones are called in an event loop each."""

    def __init__(self, cluster: Any, flavour: str, view: Any = None) -> None:
        self.cluster, self.flavour = cluster, flavour
        self._view = view or (lambda api: api)

    @property
    def api(self) -> Any:
        return self._view(self.cluster.api if self.flavour == "sync" else self.cluster.async_api)

    def viewed(self, method: str, *args: Any, **kwargs: Any) -> "Caller":
        """The same with a view of the client."""
        return Caller(
            self.cluster, self.flavour, lambda api: getattr(self._view(api), method)(*args, **kwargs)
        )

    def list(self, *args: Any, **kwargs: Any) -> list[Any]:
        """All objects, page by page."""

        async def collect() -> list[Any]:
            return [body async for body in self.api.list(*args, **kwargs)]

        if self.flavour == "sync":
            return [body for body in self.api.list(*args, **kwargs)]
        return asyncio.run(collect())

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            method = getattr(self.api, name)
            if self.flavour == "sync":
                return method(*args, **kwargs)

            async def run() -> Any:
                result = method(*args, **kwargs)
                return await asyncio.wait_for(result, 60) if inspect.isawaitable(result) else result

            return asyncio.run(run())

        return call


@pytest.fixture(params=["sync", "async"])
def client(request: pytest.FixtureRequest, cluster: Any) -> Iterator[Caller]:
    yield Caller(cluster, request.param)


@pytest.fixture
def callers(cluster: Any) -> list[Caller]:
    """Both of them."""
    return [Caller(cluster, "sync"), Caller(cluster, "async")]


@pytest.fixture
def config_map() -> dict[str, Any]:
    return {**CONFIG_MAP, "metadata": {"name": "one"}}
