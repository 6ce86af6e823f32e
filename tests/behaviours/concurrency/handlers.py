"""Some functions hold all threads until the test opens a gate; others need none."""

import kopf


@kopf.on.startup()
def configure(settings, memo, **_):
    settings.execution.max_workers = memo.threads
    settings.posting.enabled = False


@kopf.on.create("widgets", labels={"way": "sync"})
def slow(memo, name, **_):
    memo.calls.append(("slow", name))
    assert memo.gate.wait(120)


@kopf.on.create("widgets", labels={"way": "async"})
async def quick(memo, name, patch, **_):
    memo.calls.append(("quick", name))
    patch.status["quick"] = "done"


@kopf.on.update("widgets", labels={"way": "async"})
async def again(memo, new, **_):
    memo.calls.append(("again", new["spec"]["size"]))


@kopf.timer("widgets", labels={"way": "async"}, interval=0.05)
async def tick(memo, retry, **_):
    memo.calls.append(("tick", retry))


@kopf.daemon("widgets", labels={"way": "async"})
async def guard(memo, stopped, **_):
    memo.calls.append(("guard", "begun"))
    while not stopped:
        await stopped.wait(10)
    memo.calls.append(("guard", "ended"))
