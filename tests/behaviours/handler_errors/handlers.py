"""Handlers that fail in unusual ways; the spec selects the handler and the failure."""

import asyncio
import collections
import dataclasses

import kopf


@kopf.on.startup()
def hurry(settings, **_):
    settings.queueing.error_delays = [10]


class Panic(BaseException):
    """An error that is no `Exception`, such as a panic of a native library."""


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """An error whose attributes cannot be set."""

    code: int


class Speechless(Exception):
    """An error without a message."""

    def __str__(self):
        return None


class Odd(collections.UserDict):
    """A mapping whose keys cannot be read."""

    def keys(self):
        raise RuntimeError("This is odd.")


def chosen(id):
    return lambda spec, **_: spec.get("handler") == id


def called(id, memo, spec, patch):
    failure = spec.get("failure")
    memo.calls.append((id, failure))
    match failure:
        case "a clash with the own patch":
            patch.status[id] = "text"
        case "a status that is no mapping":
            patch["status"] = "text"
        case "a patch that breaks":
            patch.spec["odd"] = Odd(a=1)
        case "a patch that is not JSON":
            patch.spec["odd"] = object()
        case "a panic":
            raise Panic("boo")
        case "a frozen error":
            raise Frozen(5)
        case "an error without text":
            raise Speechless
    return {"size": spec["size"]}


def declare(id, *decorators, **options):
    """Declare a sync handler and an async one, which do the same."""

    def fn(memo, spec, patch, **_):
        if spec.get("failure") == "a cancellation":
            memo.calls.append((id, "a cancellation"))
            raise asyncio.CancelledError
        return called(id, memo, spec, patch)

    async def coroutine(memo, spec, patch, **_):
        await asyncio.sleep(0)
        if spec.get("failure") == "a cancellation":
            memo.calls.append((f"{id}-async", "a cancellation"))
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled
        return called(f"{id}-async", memo, spec, patch)

    for decorator in decorators:
        decorator("widgets", id=id, when=chosen(id), **options)(fn)
        decorator("widgets", id=f"{id}-async", when=chosen(f"{id}-async"), **options)(coroutine)


declare("change", kopf.on.create, kopf.on.update, backoff=10)
declare("event", kopf.on.event)
declare("timer", kopf.timer, interval=5, backoff=10)
declare("daemon", kopf.daemon, backoff=10)


@kopf.on.create("widgets", when=chosen("parent"), backoff=100)
def parent(memo, spec, patch, **_):
    memo.calls.append(("parent", spec.get("failure")))

    @kopf.subhandler(id="child")
    def child(memo, spec, patch, **_):
        return called("parent/child", memo, spec, patch)
