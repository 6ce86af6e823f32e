"""The memory of running daemons and timers: there can be one for each object."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import types
from typing import Any

import pytest
from kopf._intents.causes import DaemonCause
from kopf._intents.handlers import DaemonHandler
from kopf._intents.settings import OperatorSettings
from kopf._objects.indices import Indexers
from kopf._objects.memos import Memo
from kopf._runtime.bridge import GetInitialDelay, Object
from kopf._runtime.context import cause_var
from kopf._runtime.daemon_instances import DaemonInstance, DaemonObject
from kopf._runtime.daemons import Daemons
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.invocation import PreparedHandler
from kopf._runtime.memos import MemoRegistry

TEXT = '{"kind":"K","metadata":{"name":"%s","namespace":"ns","uid":"u","labels":{"a":"b"}},"spec":{"x":1}}'


def handler(fn: Any) -> DaemonHandler:
    given: dict[str, Any] = dict.fromkeys(DaemonHandler.__dataclass_fields__)
    return DaemonHandler(**{**given, "fn": fn, "id": "fn"})


def run_of(fn: Any, indices: dict[str, Any] | None = None) -> DaemonInstance:
    daemon_object = DaemonObject(
        "u", Object.decode(TEXT % "n"), None, MemoRegistry(Memo()), OperatorSettings()
    )  # type: ignore[arg-type]
    return DaemonInstance(daemon_object, PreparedHandler(handler(fn)), indices or {})


def test_nothing_is_made_before_the_first_call() -> None:
    async def fn(**_: Any) -> None:
        pass

    run = run_of(fn)
    assert run.patch_or_none is run._stopper is run.daemon_object._logger is None
    assert run.daemon_object._memos._memos == {}
    assert run.daemon_object.body._meta is run.daemon_object.body._spec is None


def test_functions_get_all_arguments() -> None:
    def fn(**kwargs: Any) -> Any:
        return kwargs

    index = object()
    run = run_of(fn, {"index": index})
    arguments = run.cause.arguments()
    all_names = {"logger", "memo", "resource", "patch", "body", "spec", "meta", "status", "uid", "name"}
    all_names |= {"namespace", "labels", "annotations", "stopped"}
    assert all_names <= arguments.keys()
    assert arguments["index"] is index
    assert arguments["patch"] is run.patch
    assert arguments["spec"] == {"x": 1}
    assert bool(arguments["stopped"]) is False
    run.stopper.set()
    assert bool(arguments["stopped"]) is True


def test_an_index_wins_over_the_flag() -> None:
    def fn(stopped: Any, **_: Any) -> None:
        pass

    assert run_of(fn, {"stopped": "index"}).cause.arguments()["stopped"] == "index"


@pytest.mark.parametrize("carry", [True, False])
def test_the_next_call_gets_an_empty_patch(carry: bool) -> None:
    def fn(patch: Any, **_: Any) -> None:
        pass

    run = run_of(fn)
    run.reset_patch(carry)
    patch = run.cause.arguments()["patch"]
    run.reset_patch(carry)
    assert run.cause.arguments()["patch"] is patch  # nothing was done with it
    patch.status["x"] = 1
    patch.fns.append(print)
    run.reset_patch(carry)
    assert run.cause.arguments()["patch"] is run.patch is run.cause.patch is not patch
    assert run.patch == {}
    assert run.patch.fns == ([print] if carry else [])


def test_the_views_follow_the_object() -> None:
    def fn(body: Any, spec: Any, **_: Any) -> None:
        pass

    run = run_of(fn)
    body = run.cause.arguments()["body"]
    run.daemon_object.update(Object.decode(TEXT % "other"))
    assert body.metadata.name == "other"
    assert run.cause.arguments()["name"] == "other"


def test_the_cause_is_in_the_context_of_the_calls() -> None:
    async def fn(**_: Any) -> None:
        pass

    run = run_of(fn)
    cause: Any = run.context.run(cause_var.get)
    assert isinstance(cause, DaemonCause)
    assert (
        cause.body is run.daemon_object.body
        and cause.stopper is run.stopper
        and cause.memo is run.daemon_object.memo
    )
    assert cause_var.get(None) is None and contextvars.copy_context().get(cause_var) is None


@pytest.mark.parametrize("delay", [None, lambda **_: None, 0, lambda **_: 0])
def test_no_initial_delay_is_no_delay(delay: Any) -> None:
    one = dataclasses.replace(handler(print), initial_delay=delay)
    answers: list[Any] = []
    task = types.SimpleNamespace(
        run=1, handler=0, uid="u", resource=None, object=Object.decode(TEXT % "n"), complete=answers.append
    )

    async def main() -> None:
        environment = HandlerEnvironment(
            [one],
            settings=OperatorSettings(),
            memos=MemoRegistry(Memo()),
            indexers=Indexers(),
            invoker=None,  # type: ignore[arg-type]
        )
        daemons = Daemons(environment, complete=print)
        daemons.request_handlers()[GetInitialDelay](task)

    asyncio.run(main())
    assert answers == [0.0]
