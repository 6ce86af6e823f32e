"""Report over HTTP how many boilers are heated, and since when."""

import datetime

import kopf


@kopf.on.startup()
def light(memo, **_):
    memo.heated = set()
    memo.since = datetime.datetime.now(datetime.UTC)


@kopf.on.event("boilers")
def heat(event, name, memo, **_):
    if event["type"] == "DELETED":
        memo.heated.discard(name)
    else:
        memo.heated.add(name)


@kopf.on.probe(id="heated")
def count_boilers(memo, **_):
    return len(memo.heated)


@kopf.on.probe(id="since", errors=kopf.ErrorsMode.PERMANENT)
async def since(memo, **_):
    return memo.since.isoformat(timespec="seconds")
