"""An operator without a cluster: the phases before the engine starts and after it ends."""

import asyncio
import concurrent.futures
import inspect
import logging
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import kopf
import pytest
from kopf._intents.registries import OperatorRegistry
from kopf._objects.indices import Indexers
from kopf._objects.reasons import Activity
from kopf._runtime import operator, stop_flags
from kopf._runtime.activities import Activities, ActivityError, serialize_credentials
from kopf._runtime.executor import ExecutorPool
from kopf._runtime.functions import is_async_fn
from kopf._runtime.given_credentials import GivenCredentials
from kopf._runtime.invocation import Invoker
from kopf._runtime.running import OperatorRunner, make_resource

pytestmark = pytest.mark.contract("api 7.3")


def run_activity(registry, activity=Activity.STARTUP, settings=None):
    async def main():
        used = settings if settings is not None else kopf.OperatorSettings()
        invoker = Invoker(used, ExecutorPool())
        activities = Activities(registry=registry, settings=used, memo={}, indices={}, invoker=invoker)
        return await (
            activities.authenticate() if activity == Activity.AUTHENTICATION else activities.run(activity)
        )

    return asyncio.run(main())


def test_new_credentials_in_the_vault_replace_the_login():
    registry, vault = OperatorRegistry(), {"a": kopf.ConnectionInfo(server="http://first")}
    given = GivenCredentials(vault)

    @kopf.on.login(registry=registry)
    async def login(**_):
        return kopf.ConnectionInfo(server="http://login")

    async def main():
        settings = kopf.OperatorSettings()
        invoker = Invoker(settings, ExecutorPool())
        activities = Activities(
            registry=registry, settings=settings, memo={}, indices={}, invoker=invoker, given=given
        )

        async def servers(method):
            return {key: fields["server"] for key, fields in await method()}

        client = [await servers(activities.authenticate_client)]
        engine = [{key: info.server for key, info in given.take().items()}]
        client.append(await servers(activities.authenticate_client))
        vault["a"] = kopf.ConnectionInfo(server="http://second")
        vault["b"] = kopf.ConnectionInfo(server="http://third")
        engine += [await servers(activities.authenticate) for _ in range(2)]
        client.append(await servers(activities.authenticate_client))
        vault["b"] = kopf.ConnectionInfo(server="http://third")  # the same is no news
        engine.append(await servers(activities.authenticate))
        return client, engine

    client, engine = asyncio.run(main())
    first, login_result = {"a": "http://first"}, {login.__qualname__: "http://login"}
    assert engine == [first, {"a": "http://second", "b": "http://third"}, login_result, login_result]
    assert client == [first, first, login_result]


def test_rejected_certificates_do_not_invalidate_the_credentials_in_the_vault():
    registry, vault = OperatorRegistry(), {"a": kopf.ConnectionInfo(server="http://first")}

    @kopf.on.login(registry=registry)
    async def login(**_):
        return kopf.ConnectionInfo(server="http://login")

    async def main():
        settings, given = kopf.OperatorSettings(), GivenCredentials(vault)
        invoker = Invoker(settings, ExecutorPool())
        activities = Activities(
            registry=registry, settings=settings, memo={}, indices={}, invoker=invoker, given=given
        )
        given.take()
        results = [await activities.authenticate(is_renewal=is_renewal) for is_renewal in (True, False, True)]
        return [{key: fields["server"] for key, fields in result} for result in results]

    renewed, rejected, renewed_later = asyncio.run(main())
    assert renewed == {"a": "http://first"}
    assert rejected == renewed_later == {login.__qualname__: "http://login"}


@pytest.mark.contract("api 3.1")
def test_activities_get_their_arguments_and_give_results():
    registry, seen = OperatorRegistry(), {}

    @kopf.on.startup(registry=registry, param=1)
    async def one(**kwargs):
        seen.update(kwargs)
        return object

    @kopf.on.startup(registry=registry)
    def two(**_):
        return None

    assert list(run_activity(registry).values()) == [object]
    assert set(seen) == {"param", "retry", "started", "runtime", "logger", "memo", "activity", "settings"}
    assert seen["logger"].name == "kopf.activities.startup" and seen["activity"] == "startup"


@pytest.mark.contract("engine 7.9")
def test_activities_retry_until_done(caplog):
    registry, retries = OperatorRegistry(), []

    @kopf.on.startup(registry=registry)
    async def fn(retry, **_):
        retries.append(retry)
        if retry < 2:
            raise kopf.TemporaryError("boo", delay=0.01)
        return "done"

    assert list(run_activity(registry).values()) == ["done"] and retries == [0, 1, 2]
    assert "fn' failed temporarily: boo" in caplog.text


@pytest.mark.contract("engine 7.9")
@pytest.mark.parametrize(
    ("error", "options", "cause"),
    [
        (kopf.PermanentError("boo"), {}, kopf.PermanentError),
        (ValueError("boo"), {"errors": kopf.ErrorsMode.PERMANENT}, ValueError),
        (kopf.TemporaryError("boo", delay=0), {"retries": 2}, kopf.HandlerRetriesError),
        (kopf.TemporaryError("boo", delay=0), {"retries": 2.0}, kopf.HandlerRetriesError),
        (kopf.TemporaryError("boo", delay=5), {"timeout": 1}, kopf.HandlerTimeoutError),
        (kopf.TemporaryError("it timed out", delay=0), {"retries": 2}, kopf.HandlerRetriesError),
        (ValueError("it timed out"), {"retries": 2, "backoff": 0}, kopf.HandlerRetriesError),
        (ValueError("boo"), {"timeout": 1, "backoff": 5}, kopf.HandlerTimeoutError),
    ],
)
def test_activities_fail_with_the_cause(error, options, cause):
    registry = OperatorRegistry()

    @kopf.on.startup(registry=registry, **options)
    async def fn(**_):
        raise error

    with pytest.raises(ActivityError, match="One or more handlers failed") as info:
        run_activity(registry)
    assert type(info.value.__cause__) is cause
    [outcome] = info.value.outcomes.values()
    assert outcome.exception is info.value.__cause__ and outcome.final and outcome.result is None


def test_ignored_errors_are_successes():
    registry = OperatorRegistry()

    @kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.IGNORED)
    async def fn(**_):
        raise ValueError("boo")

    assert run_activity(registry) == {}


@pytest.mark.contract("api 7.1")
def test_credentials_are_described_for_the_engine():
    registry = OperatorRegistry()
    assert run_activity(registry, Activity.AUTHENTICATION) is None

    @kopf.on.login(registry=registry)
    async def fn(**_):
        return kopf.ConnectionInfo(server="https://x", token="t", ca_data=b"abc")

    [(id, fields)] = run_activity(registry, Activity.AUTHENTICATION)
    assert id.endswith("fn")
    assert (fields["server"], fields["token"], fields["ca_data"]) == ("https://x", "t", "abc")


def test_foreign_types_of_credentials_are_rejected():
    with pytest.raises(ValueError, match="Only ConnectionInfo/AiohttpSession instances are accepted"):
        serialize_credentials({"server": "x"})


@pytest.mark.contract("api 7.2")
def test_unusable_credentials_are_rejected_with_advice():
    with pytest.raises(TypeError, match=r"Return kopf\.ConnectionInfo with the same server"):
        serialize_credentials(kopf.AiohttpSession(server="x", aiohttp_session=object()))

    class Signing(kopf.ConnectionInfo):
        def as_http_headers(self):
            return {"X-Signature": "secret"}

    with pytest.raises(TypeError, match=r"Signing.as_http_headers\(\) cannot be used"):
        serialize_credentials(Signing(server="x"))


@pytest.mark.contract("api 10.1")
def test_failed_startup_stops_the_operator_without_cleanup():
    registry, cleaned = OperatorRegistry(), []

    @kopf.on.startup(registry=registry)
    def fail(**_):
        raise kopf.PermanentError("boo")

    @kopf.on.cleanup(registry=registry)
    def clean(**_):
        cleaned.append(1)

    with pytest.raises(ActivityError):
        kopf.run(registry=registry, clusterwide=True)
    assert not cleaned


@pytest.mark.contract("api 6.1")
@pytest.mark.parametrize("make", [threading.Event, concurrent.futures.Future], ids=["event", "future"])
def test_flags_start_and_stop_the_operator(make, caplog):
    registry, called = OperatorRegistry(), []

    @kopf.on.startup(registry=registry)
    def start(**_):
        called.append("startup")

    @kopf.on.cleanup(registry=registry)
    async def clean(**_):
        called.append("cleanup")

    @kopf.on.login(registry=registry)
    async def login(**_):
        await asyncio.sleep(60)

    ready, stop = make(), make()

    def stopper():
        ready.wait(60) if isinstance(ready, threading.Event) else ready.result(60)
        stop_flags.raise_flag(stop)

    thread = threading.Thread(target=stopper)
    thread.start()
    with caplog.at_level(logging.INFO):
        kopf.run(registry=registry, clusterwide=True, ready_flag=ready, stop_flag=stop)
    thread.join()
    assert called == ["startup", "cleanup"]
    assert "Stop-flag is" in caplog.text and "has finished unexpectedly" not in caplog.text


def test_unsupported_flags_are_errors():
    with pytest.raises(TypeError, match="Unsupported type of a flag: 5"):
        kopf.run(registry=OperatorRegistry(), clusterwide=True, stop_flag=5)


@pytest.mark.contract("api 6.3")
def test_scopes_are_checked():
    with pytest.raises(TypeError, match="either cluster-wide or namespaced"):
        kopf.run(registry=OperatorRegistry(), clusterwide=True, namespaces=["x"])
    with pytest.raises(TypeError, match="Got both"):
        kopf.run(registry=OperatorRegistry(), namespace="y", namespaces=["x"])


@pytest.mark.contract("engine 0.5")
def test_async_functions_are_recognised():
    import functools

    async def fn(**_):
        pass

    class Callable:
        async def __call__(self, **_):
            pass

    @functools.wraps(fn)
    def wrapper(**kwargs):
        return fn(**kwargs)

    assert is_async_fn(fn) and is_async_fn(functools.partial(fn)) and is_async_fn(wrapper)
    assert not is_async_fn(Callable()) and not is_async_fn(print) and not is_async_fn(None)


def test_identities():
    assert "@" in operator.detect_own_id(manual=True)
    assert operator.detect_own_id(manual=False) != operator.detect_own_id(manual=True)


@pytest.mark.parametrize(
    ("how", "options"),
    [
        ("await kopf.spawn_tasks(", ""),
        ("await kopf.operator(", ""),
        ("await asyncio.create_task(kopf.operator(", ")"),
        ("kopf.run(", ""),
    ],
)
@pytest.mark.parametrize(
    ("scope", "category"), [("", "FutureWarning"), ("namespace='x', ", "DeprecationWarning")]
)
def test_warnings_point_to_the_code_of_users(tmp_path, how, options, scope, category):
    call = f"{how}{scope}stop_flag=stop){options}"
    body = f"    {call}" if how.startswith("kopf.run") else "    asyncio.run(main())"
    script = tmp_path / "script.py"
    script.write_text(f"""import asyncio, threading, kopf
stop = threading.Event()
stop.set()
async def main():
    {call if how.startswith("await") else "pass"}
try:
{body}
except Exception:
    pass
""")
    command = [sys.executable, "-W", "always", str(script)]
    env = {**os.environ, "KUBECONFIG": "/nowhere"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    [line] = [line for line in done.stderr.splitlines() if category in line]
    assert line.startswith(f"{script}:")


def test_a_request_that_cannot_be_converted_takes_no_others_along(rig, make_watching, caplog):
    calls = []

    async def main():
        made = rig(make_watching(lambda **_: calls.append(1), id="x"), make_resource=make_first)
        return await made.play(("log", []), ("watch", [0]), count=3)

    def make_first(fields):
        made.append(fields)
        if len(made) == 1:
            raise ValueError("boo")
        return make_resource(fields)

    made = []
    replies = asyncio.run(main())
    assert len(replies) == 3 and len(calls) == 2
    assert [reply["error"] for reply in replies if reply["error"]] == ["ValueError: boo"]
    [record] = [record for record in caplog.records if "Internal error" in record.getMessage()]
    assert "cannot be converted to Python: ValueError: boo" in record.getMessage()
    assert record.k8s_ref["name"] == "obj1"


def test_the_engine_is_stopped_if_its_event_loop_ends_without_the_operator():
    stopped = []

    async def main():
        runner = OperatorRunner(
            **{
                **dict.fromkeys(inspect.signature(OperatorRunner).parameters),
                "registry": OperatorRegistry(),
                "settings": kopf.OperatorSettings(),
                "indexers": Indexers(),
            }
        )
        engine = SimpleNamespace(stop=lambda: stopped.append(True))
        waiting = runner._wait_until_finished(engine, asyncio.get_running_loop().create_future(), None)
        waiting.send(None)
        waiting.close()

    asyncio.run(main())
    assert stopped
