"""The Python side of the bindings without an engine: the tests put commands on the queue.

The tests need the extension with the feature `testing`, and are skipped without it.
"""

# ruff: noqa: E402
from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

native = pytest.importorskip("kopf._kopf", reason="the native module is not built")
if not hasattr(native, "inject"):
    pytest.skip("the native module is built without the feature `testing`", allow_module_level=True)

from kopf._intents import lifecycles, serialization
from kopf._intents.handlers import ChangingHandler, ResourceHandler, WatchingHandler
from kopf._intents.settings import OperatorSettings
from kopf._objects.indices import Indexers
from kopf._objects.memos import Memo
from kopf._runtime.bridge import Bridge, Engine
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.executor import ExecutorPool
from kopf._runtime.invocation import Invoker
from kopf._runtime.memos import MemoRegistry
from kopf._runtime.running import make_resource
from kopf._runtime.task_dispatcher import TaskDispatcher

OBJECT: dict[str, Any] = {
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "metadata": {
        "name": "obj1",
        "namespace": "ns1",
        "uid": "uid1",
        "resourceVersion": "123",
        "labels": {"app": "x"},
        "annotations": {"note": "ünïcode \U0001f600"},
    },
    "spec": {"field": "value", "items": [1, 2.5, True, None, {"deep": [[]]}], "big": 2**63},
    "status": {"phase": "Ready"},
}
TEXT = json.dumps(OBJECT)

COMMON: dict[str, Any] = {
    "param": None,
    "errors": None,
    "timeout": None,
    "retries": None,
    "backoff": None,
    "selector": None,
    "labels": None,
    "annotations": None,
    "when": None,
    "field": None,
    "value": None,
}


def watching(fn: Any, **kwargs: Any) -> WatchingHandler:
    return WatchingHandler(**{**COMMON, "id": fn.__name__, "fn": fn, **kwargs})


def changing(fn: Any, **kwargs: Any) -> ChangingHandler:
    names = ["reason", "initial", "deleted", "requires_finalizer", "field_needs_change", "old", "new"]
    specific = dict.fromkeys(names)
    return ChangingHandler(**{**COMMON, **specific, "id": fn.__name__, "fn": fn, **kwargs})


class Rig:
    """Everything between the queue and the handlers."""

    def __init__(
        self,
        *handlers: ResourceHandler,
        lifecycle: Any = lifecycles.asap,
        memo: Any = None,
        make_resource: Any = make_resource,
    ) -> None:
        self.engine = Engine(
            handlers=[serialization.serialize_handler(handler) for handler in handlers],
            settings={},
            lifecycle="custom",
            namespaces=[],
            agent="kopf/test",
            make_resource=make_resource,
        )
        self.settings = OperatorSettings()
        self.loop = asyncio.get_running_loop()
        self.indexers = Indexers()
        environment = HandlerEnvironment(
            handlers,
            settings=self.settings,
            memos=MemoRegistry(memo if memo is not None else Memo()),
            indexers=self.indexers,
            invoker=Invoker(self.settings, ExecutorPool(self.loop)),
        )
        self.dispatcher = TaskDispatcher(environment, lifecycle=lifecycle, login=self._login)
        self.bridge = Bridge(self.engine, self.dispatcher.request_handlers, self.loop)
        self.dispatcher.complete = self.bridge.complete
        self.dispatcher.set_context()

    async def _login(self, is_renewal: bool) -> None:
        return None

    async def play(self, *steps: tuple[str, list[int]], **kwargs: Any) -> list[Any]:
        """The replies as dicts; or, for a transformation, the object or the error as text."""
        work = native.inject(self.engine, kwargs.pop("text", TEXT), list(steps), **kwargs)
        replies: list[Any] = []
        with self.open():
            for _ in range(500):
                await asyncio.sleep(0.001)
                replies += work.replies()
                if len(replies) >= kwargs.get("count", 1):
                    break
        transformed = work.transformed()
        return replies if transformed is None else [transformed]

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        self.bridge.open()
        try:
            yield
        finally:
            self.bridge.close()


@pytest.fixture
def rig() -> type[Rig]:
    return Rig


@pytest.fixture
def outcome() -> Any:
    """Get the outcome of the only attempt of a reply."""

    def get(reply: dict[str, Any]) -> dict[str, Any]:
        [attempted] = [step["attempted"] for step in reply["results"] if "attempted" in step]
        return attempted

    return get


@pytest.fixture
def make_watching() -> Any:
    return watching


@pytest.fixture
def make_changing() -> Any:
    return changing


@pytest.fixture
def raw() -> dict[str, Any]:
    return json.loads(TEXT)


@pytest.fixture
def text() -> str:
    return TEXT
