"""Sub-handlers that are registered in a loop, and in sub-handlers."""

import kopf
from tracer import GROUP, trace


@kopf.on.create(GROUP, "widgets")
@kopf.on.update(GROUP, "widgets")
def parent(spec, **kwargs):
    trace({**kwargs, "spec": spec})
    for item in spec.get("items", []):

        @kopf.subhandler(id=item, param=item)
        def child(param, retry, **kwargs):
            trace({**kwargs, "retry": retry, "param": param}, fn=f"child {param}")
            if param == "flaky" and retry < 2:
                raise kopf.TemporaryError("not yet", delay=0.6)
            if param == "broken":
                raise kopf.PermanentError("broken for good")
            return f"made {param}"

    return "parent result"


@kopf.on.create(GROUP, "widgets")
async def sibling(**kwargs):
    trace(kwargs)

    @kopf.subhandler()
    async def unnamed(**kwargs):
        trace(kwargs)

        @kopf.subhandler()
        async def deeper(**kwargs):
            trace(kwargs)
            return {"depth": 2}
