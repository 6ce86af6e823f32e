"""W5: a handler of updates; W5F: and one of a field."""

import os

import kopf
from reporting import GROUP, saw, traced


@kopf.on.event(*GROUP)
@traced
async def bench_event(name, **_):
    saw(name, 0)


@kopf.on.update(*GROUP)
@traced
async def bench_update(diff, **_):
    if not diff:
        raise kopf.PermanentError("An update without a difference.")


if os.environ.get("BENCH_FIELD") == "1":

    @kopf.on.field(*GROUP, field="spec.rev")
    @traced
    async def bench_field(old, new, **_):
        if old == new:
            raise kopf.PermanentError("The field has not changed.")
