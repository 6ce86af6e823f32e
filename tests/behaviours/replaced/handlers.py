"""The handler of the first widget waits; that of the second one fails at first."""

import asyncio

import kopf


@kopf.on.create("widgets")
async def create(memo, spec, retry, patch, **_):
    memo.calls.append(("create", spec["number"], retry))
    if spec["number"] == 1:
        await asyncio.to_thread(memo.proceed.wait, 60)
    elif retry == 0:
        raise kopf.TemporaryError("It is not ready.", delay=0.5)
    patch.metadata.labels["created-by"] = str(spec["number"])
    patch.status[f"by-{spec['number']}"] = True
    memo.calls.append(("created", spec["number"]))
    return {"number": spec["number"]}
