"""Calls of handlers: with all arguments, also through decorators, and separately for each object."""

import asyncio
import contextvars
import functools
import inspect
import logging
import sys

import kopf
import pytest
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
