"""Handlers that read and change the memo; parameters of handlers."""

import kopf
from tracer import GROUP, trace


@kopf.on.startup()
def prepare(memo, **_):
    memo.shared = {"by": "startup"}
    memo["calls"] = 0


@kopf.on.event(GROUP, "widgets")
def remember(memo, type, name, **_):
    memo.setdefault("names", [])
    if name not in memo.names:
        memo.names.append(name)


@kopf.on.create(GROUP, "widgets", param="first", id="c1")
@kopf.on.create(GROUP, "widgets", param=["second", 2], id="c2")
def parametrized(memo, **kwargs):
    memo.calls += 1
    memo.shared["last"] = kwargs["name"]
    trace({**kwargs, "memo": memo})


@kopf.on.update(GROUP, "widgets", param=None)
async def unparametrized(memo, **kwargs):
    trace(
        {**kwargs, "memo": memo},
        attribute=memo.calls,
        missing=hasattr(memo, "absent"),
        kind=isinstance(memo, kopf.Memo),
    )
