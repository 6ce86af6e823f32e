"""Calls of handlers: with all arguments, also through decorators, and separately for each object."""

import asyncio
import contextvars
import copy
import functools
import inspect
import json
import logging
import pickle
import sys

import kopf
import pytest
import yaml
from kopf.testing import Operator

ARGUMENTS = {
    "retry",
    "started",
    "runtime",
    "param",
    "body",
    "spec",
    "meta",
    "status",
    "uid",
    "name",
    "namespace",
}
ARGUMENTS |= {"labels", "annotations", "patch", "logger", "memo", "resource"}
OF_EVENTS = ARGUMENTS | {"type", "event"}
OF_CHANGES = ARGUMENTS | {"reason", "diff", "old", "new"}
OF_DAEMONS = ARGUMENTS | {"stopped"}


@pytest.fixture
def operate(cluster):
    """Runs an operator with these handlers until the end of the test."""
    running = []

    def start(declare, **options):
        running.append(Operator(cluster, declare, **options).__enter__())
        return running[0]

    yield start
    for operator in running:
        operator.__exit__(None, None, None)


class Proxy:
    """A function as wrapped by libraries for monkey-patching: it looks like the wrapped one in all ways."""

    def __init__(self, wrapped, wrapper):
        self.__wrapped__, self._wrapper = wrapped, wrapper

    @property
    def __class__(self):
        return type(self.__wrapped__)

    def __getattr__(self, name):
        return getattr(self.__wrapped__, name)

    def __call__(self, *args, **kwargs):
        return self._wrapper(self.__wrapped__, args, kwargs)


def by_proxy(fn, seen):
    def wrapper(wrapped, args, kwargs):
        seen.append(set(kwargs))
        return wrapped(*args, **kwargs)

    return Proxy(fn, wrapper)


def by_wraps(fn, seen):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        seen.append(set(kwargs))
        return fn(*args, **kwargs)

    return wrapper


def by_debugger(fn, seen):
    # What debuggers, tracers and error reporters do: they look at the variables of the frame.
    def look(name, **kwargs):
        seen.append({"name", *sys._getframe().f_locals["kwargs"]})

    return look


@pytest.mark.parametrize("way", [by_proxy, by_wraps, by_debugger])
@pytest.mark.parametrize(
    ("decorator", "arguments"),
    [
        (functools.partial(kopf.on.event, "widgets"), OF_EVENTS),
        (functools.partial(kopf.on.create, "widgets"), OF_CHANGES),
        (functools.partial(kopf.daemon, "widgets"), OF_DAEMONS),
        (functools.partial(kopf.timer, "widgets", interval=60), OF_DAEMONS),
        (functools.partial(kopf.index, "widgets"), ARGUMENTS),
    ],
    ids=["event", "create", "daemon", "timer", "index"],
)
def test_functions_get_all_arguments_also_through_wrappers(operate, make, way, decorator, arguments):
    seen = []

    def declare():
        decorator()(way(lambda **_: None, seen))

    operator = operate(declare)
    make("one")
    operator.wait_until_idle()
    assert seen and arguments <= seen[0]


def by_json(value):
    return json.loads(json.dumps(value))


def by_yaml(value):
    return yaml.safe_load(yaml.safe_dump(value))


def by_pickle(value):
    return pickle.loads(pickle.dumps(value))


def by_orjson(value):
    orjson = pytest.importorskip("orjson")
    return orjson.loads(orjson.dumps(value))


def by_pydantic(value):
    pydantic = pytest.importorskip("pydantic")
    return pydantic.TypeAdapter(dict).validate_python(value)


def by_msgspec(value):
    msgspec = pytest.importorskip("msgspec")
    return msgspec.json.decode(msgspec.json.encode(value))


@pytest.fixture
def arguments(operate, make):
    """The arguments of an event handler and of a change handler."""
    seen = {}

    def declare():
        @kopf.on.event("widgets")
        async def event(**kwargs):
            seen.setdefault("event", kwargs)

        @kopf.on.create("widgets")
        async def create(patch, **kwargs):
            seen.setdefault("create", {**kwargs, "patch": kopf.Patch({"spec": {"x": 1}})})

    operator = operate(declare)
    make(
        "one",
        {"text": '\u00fc \U0001f600 "quoted"', "items": [1, 2.5, None, True, {"deep": [[]]}]},
        labels={"a": "b"},
    )
    operator.wait_until_idle()
    return seen


VALUES = ("body", "spec", "meta", "status", "labels", "annotations", "patch", "memo")


@pytest.mark.parametrize("copied", [by_json, by_yaml, by_pickle, by_orjson, by_pydantic, by_msgspec])
def test_raw_events_and_essences_are_plain_values_for_libraries(arguments, copied):
    event, new = arguments["event"]["event"], arguments["create"]["new"]
    assert type(event) is dict and type(event["object"]) is dict and type(new) is dict
    assert copied(event) == event and copied(new) == new


@pytest.mark.parametrize("copied", [by_json, by_yaml, by_pickle, by_orjson, by_pydantic, by_msgspec])
@pytest.mark.parametrize("handler", ["event", "create"])
def test_mappings_are_plain_values_for_libraries_once_they_are_dicts(arguments, handler, copied):
    for name in VALUES:
        value = dict(arguments[handler][name])
        assert copied(value) == value, name


@pytest.mark.parametrize("copied", [by_pickle, copy.copy, copy.deepcopy])
def test_mappings_can_be_copied_as_they_are(arguments, copied):
    for name in (*VALUES, "diff", "old", "new", "resource", "started", "runtime"):
        value = arguments["create"][name]
        assert copied(value) == value and type(copied(value)) is type(value), name


def test_tracers_see_the_arguments_of_handlers(operate, make):
    seen = []

    def trace(frame, event, arg):
        if frame.f_code.co_name == "traced":
            seen.append((event, set(frame.f_locals["kwargs"])))
            return trace
        return None

    def declare():
        # The tracer is of the thread of the event loop.
        @kopf.on.event("widgets", when=lambda name, **_: name == "first")
        async def start(**_):
            sys.settrace(trace)

        @kopf.on.event("widgets", when=lambda name, **_: name == "second")
        async def traced(**kwargs):
            await asyncio.sleep(0)

        @kopf.on.event("widgets", when=lambda name, **_: name == "third")
        async def stop(**_):
            sys.settrace(None)

    operator = operate(declare)
    for name in ("first", "second", "third"):
        make(name)
        operator.wait_until_idle()
    assert {event for event, _ in seen} >= {"call", "line", "return"}
    assert all(names >= OF_EVENTS for _, names in seen)


def test_task_factories_of_the_loop_make_the_tasks_of_handlers(operate, make):
    made = []

    def factory(loop, coroutine, **options):
        task = asyncio.Task(coroutine, loop=loop, **options)
        made.append(task)
        return task

    def declare():
        @kopf.on.startup()
        async def startup(**_):
            asyncio.get_running_loop().set_task_factory(factory)

        @kopf.on.create("widgets")
        async def create(**_):
            seen.append(asyncio.current_task())

        @kopf.timer("widgets", interval=60)
        async def timer(**_):
            seen.append(asyncio.current_task())

    seen = []
    operator = operate(declare)
    make("one")
    operator.wait_until_idle()
    assert len(seen) == 2 and all(task in made for task in seen)


def test_functions_must_accept_what_they_get(operate, make, caplog):
    def declare():
        @kopf.on.event("widgets")
        def demanding(name, body):
            raise AssertionError

    operator = operate(declare, allow_errors=TypeError)
    make("one")
    operator.wait_until_idle()
    assert "got an unexpected keyword argument" in caplog.text


def test_waiting_handlers_are_tasks_with_names_and_stacks(operate, make):
    tasks, waiting, release = [], asyncio.Event(), asyncio.Event()

    def declare():
        @kopf.on.create("widgets", id="slow")
        async def slow(**_):
            tasks.append(asyncio.current_task())
            waiting.set()
            await release.wait()

        @kopf.daemon("widgets", id="watcher")
        async def watcher(memo, **_):
            await waiting.wait()
            [task] = tasks
            memo.seen = task.get_name(), [frame.f_code.co_name for frame in task.get_stack()]
            memo.state = inspect.getcoroutinestate(task.get_coro())
            memo.own = asyncio.current_task().get_name()
            release.set()
            seen.append(memo)

    seen = []
    operator = operate(declare)
    make("one")
    operator.wait_until_idle()
    [memo] = seen
    assert memo.seen[0] == "Handler 'slow' of default/one" and memo.own == "Daemon 'watcher' of default/one"
    assert memo.seen[1] and memo.state == inspect.CORO_SUSPENDED


def test_context_variables_do_not_leak_from_object_to_object(operate, make):
    var = contextvars.ContextVar("var", default="nothing")
    seen = []

    def declare():
        @kopf.on.event("widgets")
        async def event(name, **_):
            seen.append(var.get() if var.get() != name else "nothing")
            var.set(name)

        @kopf.on.create("widgets")
        async def quick(name, **_):
            seen.append(var.get() if var.get() != name else "nothing")
            var.set(name)

        @kopf.on.create("widgets")
        async def slow(name, **_):
            await asyncio.sleep(0)
            seen.append(var.get() if var.get() != name else "nothing")
            var.set(name)

        @kopf.on.create("widgets")
        def in_thread(name, **_):
            seen.append(var.get() if var.get() != name else "nothing")
            var.set(name)

    operator = operate(declare)
    for number in range(5):
        make(f"it-{number}")
    operator.wait_until_idle()
    assert len(seen) >= 20 and set(seen) == {"nothing"}


def test_levels_that_a_handler_sets_are_obeyed_at_once(operate, make, caplog):
    root = logging.getLogger()
    level = root.level

    def declare():
        @kopf.on.create("widgets")
        def create(**_):
            root.setLevel(logging.DEBUG)

    root.setLevel(logging.INFO)
    try:
        operator = operate(declare)
        make("one")
        operator.wait_until_idle()
    finally:
        root.setLevel(level)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert any(line.startswith("Merge-patching the resource with: ") for line in lines)
