"""Admission without a cluster: the function passed to webhook servers, and the native server."""

# ruff: noqa: E402
from __future__ import annotations

import asyncio
import base64
import gc
import json
import weakref
from typing import Any

import pytest

native = pytest.importorskip("kopf._kopf", reason="the native module is not built")
if not hasattr(native, "inject_review"):
    pytest.skip("the native module is built without the feature `testing`", allow_module_level=True)

import kopf
from kopf._intents import serialization
from kopf._intents.registries import OperatorRegistry, resource_handlers
from kopf._intents.settings import OperatorSettings
from kopf._objects.indices import Indexers
from kopf._objects.memos import Memo
from kopf._runtime import admission as reviews
from kopf._runtime.bridge import Bridge, Engine
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.executor import ExecutorPool
from kopf._runtime.invocation import Invoker
from kopf._runtime.memos import MemoRegistry
from kopf._runtime.running import make_resource
from kopf._runtime.task_dispatcher import TaskDispatcher

RESOURCE: dict[str, Any] = {
    "group": "kopf.dev",
    "version": "v1",
    "plural": "kopfexamples",
    "kind": "KopfExample",
    "singular": "kopfexample",
    "shortcuts": [],
    "categories": [],
    "subresources": [],
    "verbs": [],
    "namespaced": True,
    "preferred": True,
}


class WeaklyReferencedError(Exception):
    """An exception whose end can be seen."""


class Rig:
    """An operator's admission, with handlers in a separate registry."""

    def __init__(self) -> None:
        self.registry = OperatorRegistry()
        self.settings = OperatorSettings()
        self.memos = MemoRegistry(Memo(common=[]))

    def open(self) -> reviews.Admission:
        loop = asyncio.get_running_loop()
        handlers = resource_handlers(self.registry)
        self.engine = Engine(
            handlers=[serialization.serialize_handler(handler) for handler in handlers],
            settings={},
            lifecycle="asap",
            namespaces=[],
            agent="kopf/test",
            make_resource=make_resource,
        )
        native.inject_review(self.engine, RESOURCE)
        invoker = Invoker(self.settings, ExecutorPool(loop))
        environment = HandlerEnvironment(
            handlers, settings=self.settings, memos=self.memos, indexers=Indexers(), invoker=invoker
        )
        dispatcher = TaskDispatcher(environment, lifecycle=kopf.lifecycles.asap, login=self._login)
        admission = reviews.Admission(self.engine, environment)
        dispatcher.request_handlers[native.AdmissionReview] = admission.receive
        self.bridge = Bridge(self.engine, dispatcher.request_handlers, loop)
        dispatcher.set_context()
        self.bridge.open()
        return admission

    async def _login(self, is_renewal: bool) -> None:
        return None


@pytest.fixture
def rig():
    rig = Rig()
    yield rig


def review(**changes: Any) -> Any:
    request = {
        "uid": "u1",
        "operation": "UPDATE",
        "resource": {"group": "kopf.dev", "version": "v1", "resource": "kopfexamples"},
        "userInfo": {"username": "me", "groups": ["a"]},
        "object": {"metadata": {"name": "x", "uid": "o1", "labels": {"l": "1"}}, "spec": {"n": 2}},
        "oldObject": {"metadata": {"name": "x", "uid": "o1"}, "spec": {"n": 1}},
        **changes,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def ask(rig: Rig, request: Any, **kwargs: Any) -> Any:
    async def main() -> Any:
        return await rig.open()(request, **kwargs)

    return asyncio.run(main())["response"]


@pytest.mark.contract("api 3.1", "observed 12")
def test_a_handler_gets_all_arguments(rig):
    seen: dict[str, Any] = {}

    @kopf.on.validate("kopfexamples", registry=rig.registry, param="p")
    def fn(**kwargs):
        seen.update(kwargs)

    response = ask(rig, review(dryRun=True), headers={"H": "v"}, sslpeer={"subject": ()})
    assert response == {"uid": "u1", "allowed": True}
    assert set(seen) == {
        *(
            "param",
            "retry",
            "started",
            "runtime",
            "logger",
            "memo",
            "resource",
            "patch",
            "body",
            "spec",
            "meta",
        ),
        *("status", "uid", "name", "namespace", "labels", "annotations", "old", "new", "diff", "dryrun"),
        *("operation", "subresource", "userinfo", "headers", "sslpeer", "warnings"),
    }
    assert seen["param"] == "p" and seen["retry"] == 0
    assert seen["operation"] == "UPDATE" and seen["subresource"] is None and seen["dryrun"] is True
    assert seen["userinfo"] == {"username": "me", "groups": ["a"]}
    assert seen["headers"] == {"H": "v"} and seen["sslpeer"] == {"subject": ()}
    assert seen["old"]["spec"] == {"n": 1} and seen["new"]["spec"] == {"n": 2} == seen["spec"]
    assert isinstance(seen["old"], kopf.Body) and isinstance(seen["new"], kopf.Body)
    assert seen["diff"] == (
        ("add", ("metadata", "labels"), None, {"l": "1"}),
        ("change", ("spec", "n"), 1, 2),
    )
    assert seen["resource"].plural == "kopfexamples"


@pytest.mark.parametrize("name", ["body", "userinfo", "headers"])
def test_a_traceback_stored_in_an_argument_is_collected(rig, name):
    references: list[weakref.ref[Any]] = []

    @kopf.on.validate("kopfexamples", registry=rig.registry)
    async def fn(**kwargs):  # a thread would keep the arguments for a moment longer
        stored = kwargs[name]["spec"] if name == "body" else kwargs[name]
        error = WeaklyReferencedError()
        references.append(weakref.ref(error))
        try:
            raise error
        except WeaklyReferencedError:
            stored["error"] = error

    assert ask(rig, review(), headers={"H": "v"})["allowed"]
    gc.collect()
    assert [reference() for reference in references] == [None]


def test_what_is_unknown_is_empty(rig):
    seen: dict[str, Any] = {}

    @kopf.on.validate("kopfexamples", registry=rig.registry)
    async def fn(**kwargs):
        seen.update(kwargs)

    ask(rig, review(operation="CREATE", oldObject=None))
    assert seen["headers"] == {} and seen["sslpeer"] == {} and seen["old"] is None
    assert seen["diff"][0][:3] == ("add", (), None)


@pytest.mark.contract("api 9.2")
def test_a_patch_becomes_a_json_patch_of_the_answer(rig):
    @kopf.on.mutate("kopfexamples", registry=rig.registry)
    def fn(patch, warnings, **_):
        patch.spec["added"] = [1]
        patch.meta.labels["l"] = None
        warnings.append(ValueError("careful"))

    response = ask(rig, review())
    assert response["patchType"] == "JSONPatch" and response["warnings"] == ["careful"]
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "remove", "path": "/metadata/labels"},
        {"op": "add", "path": "/spec/added", "value": [1]},
    ]


def test_functions_of_a_patch_are_applied(rig):
    @kopf.on.mutate("kopfexamples", registry=rig.registry)
    def fn(patch, **_):
        patch.fns.append(lambda body: body["spec"].update(n=3))

    response = ask(rig, review())
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "replace", "path": "/spec/n", "value": 3}
    ]


@pytest.mark.contract("api 9.2")
@pytest.mark.parametrize(
    "errors, status",
    [
        ([ValueError()], {"message": "ValueError()", "code": 500}),
        ([ValueError("any"), kopf.TemporaryError("later")], {"message": "later", "code": 500}),
        ([kopf.TemporaryError("later"), kopf.PermanentError("never")], {"message": "never", "code": 500}),
        (
            [kopf.PermanentError("never"), kopf.AdmissionError("nope", code=400), kopf.AdmissionError("b")],
            {"message": "nope", "code": 400},
        ),
        ([kopf.AdmissionError("none", code=None)], {"message": "none", "code": 500}),
    ],
)
def test_the_most_specific_error_is_returned(rig, errors, status):
    for index, error in enumerate(errors):

        @kopf.on.validate("kopfexamples", id=f"fn{index}", registry=rig.registry)
        def fn(error=error, **_):
            raise error

    response = ask(rig, review())
    assert response == {"uid": "u1", "allowed": False, "status": status}


@pytest.mark.contract("api 9.1")
def test_callbacks_are_asked_and_one_function_is_called_once(rig):
    called: list[str] = []

    @kopf.on.validate("kopfexamples", id="same", registry=rig.registry, when=lambda **_: False)
    @kopf.on.validate("kopfexamples", id="same", registry=rig.registry, when=lambda **_: True)
    @kopf.on.validate("kopfexamples", id="same", registry=rig.registry)
    def fn(**_):
        called.append("fn")

    @kopf.on.validate("kopfexamples", registry=rig.registry, when=lambda **_: False)
    def other(**_):
        called.append("other")

    ask(rig, review())
    assert called == ["fn"]


def test_only_the_hinted_handler_is_called(rig):
    called: list[str] = []

    @kopf.on.validate("kopfexamples", id="one", registry=rig.registry)
    def one(**_):
        called.append("one")

    @kopf.on.mutate("kopfexamples", id="two", registry=rig.registry)
    def two(**_):
        called.append("two")

    ask(rig, review(), webhook="two")
    assert called == ["two"]
    with pytest.raises(
        reviews.UnknownHandlerError, match='There is no admission handler with the id "unknown"'
    ):
        ask(rig, review(), webhook="unknown")
    assert called == ["two"]
    ask(rig, review(), webhook="")
    assert called == ["two", "one", "two"]


@pytest.mark.parametrize(
    "request_, error, text",
    [
        ({}, KeyError, "request"),
        (review(userInfo=None), reviews.MissingDataError, "User info is missing"),
        (
            review(object=None, oldObject=None),
            reviews.MissingDataError,
            "Either old or new object",
        ),
        (
            review(resource={"group": "x", "version": "v1", "resource": "ys"}),
            reviews.UnknownResourceError,
            "has no handlers: {'group': 'x'",
        ),
    ],
)
def test_senseless_requests_are_errors(rig, request_, error, text):
    @kopf.on.validate("kopfexamples", registry=rig.registry)
    def fn(**_):
        pass

    with pytest.raises(error, match=text):
        ask(rig, request_)


@pytest.mark.contract("engine 11")
def test_memos_are_kept_but_those_of_creations(rig):
    @kopf.on.validate("kopfexamples", registry=rig.registry)
    def fn(memo, operation, **_):
        memo.setdefault("seen", []).append(operation)
        memo.common.append(operation)

    ask(rig, review(operation="CREATE", oldObject=None))
    assert "seen" not in rig.memos.get_for_review("o1", ephemeral=True)
    ask(rig, review())
    ask(rig, review(object=None, operation="DELETE"))
    assert rig.memos.get("o1")["seen"] == ["UPDATE", "DELETE"]
    assert rig.memos.get("o1").common == ["CREATE", "UPDATE", "DELETE"]


def test_objects_that_were_only_reviewed_are_forgotten_when_there_are_many(rig, monkeypatch):
    monkeypatch.setattr("kopf._runtime.memos.MAX_REVIEWED", 2)
    for uid in ("a", "b", "c"):
        rig.memos.get_for_review(uid, ephemeral=False)["mark"] = uid
    assert "mark" not in rig.memos.get_for_review("a", ephemeral=True)
    assert rig.memos.get("c")["mark"] == "c"


def test_our_server_answers_many_at_once(rig):
    together = 5
    waiting: list[str] = []

    @kopf.on.validate("kopfexamples", id="slow/fn", registry=rig.registry)
    async def fn(name, headers, **_):
        waiting.append(headers["X-Number"])
        while len(waiting) < together:  # none can be answered before all have come
            await asyncio.sleep(0)
        raise kopf.AdmissionError(f"no {name}", code=418)

    async def post(port: int, number: int) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps(review()).encode()
        head = f"POST /slow/fn HTTP/1.1\r\nHost: x\r\nX-Number: {number}\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        answer = await reader.read()
        writer.close()
        return json.loads(answer.partition(b"\r\n\r\n")[2])

    async def main() -> Any:
        admission = rig.open()
        async with kopf.WebhookServer(addr="127.0.0.1", insecure=True) as server:
            async for config in server(admission):
                port = int(config["url"].rpartition(":")[2])
                return await asyncio.gather(*[post(port, number) for number in range(together)])

    answers = asyncio.run(asyncio.wait_for(main(), 30))
    assert [answer["response"]["status"] for answer in answers] == [
        {"message": "no x", "code": 418}
    ] * together
    assert sorted(waiting) == [str(number) for number in range(together)]


def test_a_handler_that_breaks_the_answer_is_a_server_error(rig):
    @kopf.on.mutate("kopfexamples", registry=rig.registry)
    def fn(patch, **_):
        patch.spec["x"] = object()

    with pytest.raises(TypeError, match="not JSON serializable"):
        ask(rig, review())
