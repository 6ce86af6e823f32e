"""Handlers that go wrong where nobody expects it: the spec says which of them, and how."""

import asyncio
import collections

import kopf


@kopf.on.startup()
def hurry(settings, **_):
    settings.queueing.error_delays = [10]


class Odd(collections.UserDict):
    """Nobody can look into it."""

    def keys(self):
        raise RuntimeError("This is odd.")


def chosen(id):
    return lambda spec, **_: spec.get("handler") == id


def called(id, memo, spec, patch):
    mishap = spec.get("mishap")
    memo.calls.append((id, mishap))
    match mishap:
        case "a clash with the own patch":
            patch.status[id] = "text"
        case "a status that is no mapping":
            patch["status"] = "text"
        case "a patch that breaks":
            patch.spec["odd"] = Odd(a=1)
        case "a patch that is not JSON":
            patch.spec["odd"] = object()
    return {"size": spec["size"]}


def declare(id, *decorators, **options):
    """The same function for them all, and another one which is a coroutine."""

    def fn(memo, spec, patch, **_):
        if spec.get("mishap") == "a cancellation":
            memo.calls.append((id, "a cancellation"))
            raise asyncio.CancelledError
        return called(id, memo, spec, patch)

    async def coroutine(memo, spec, patch, **_):
        await asyncio.sleep(0)
        if spec.get("mishap") == "a cancellation":
            memo.calls.append((f"{id}-async", "a cancellation"))
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled
        return called(f"{id}-async", memo, spec, patch)

    for decorator in decorators:
        decorator("widgets", id=id, when=chosen(id), **options)(fn)
        decorator("widgets", id=f"{id}-async", when=chosen(f"{id}-async"), **options)(coroutine)


declare("change", kopf.on.create, kopf.on.update)
declare("event", kopf.on.event)
declare("timer", kopf.timer, interval=5)
declare("daemon", kopf.daemon)


@kopf.on.create("widgets", when=chosen("parent"), backoff=100)
def parent(memo, spec, patch, **_):
    memo.calls.append(("parent", spec.get("mishap")))

    @kopf.subhandler(id="child")
    def child(memo, spec, patch, **_):
        return called("parent/child", memo, spec, patch)
