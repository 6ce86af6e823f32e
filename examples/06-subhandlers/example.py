"""Books every stop of a tour on its own: each with its own attempts, and the tour waits for all of them."""

import kopf

RUINS = {"atlantis"}
SLOW_TO_ANSWER = {"porto"}


@kopf.on.create("tours")
def plan(spec, **_):
    # All of these are called after this function returns.
    for stop in spec.get("stops", []):

        @kopf.subhandler(id=stop, param=stop)
        def book(param, retry, **_):
            if param in RUINS:
                raise kopf.PermanentError("There are no hotels.")
            if param in SLOW_TO_ANSWER and retry < 2:
                raise kopf.TemporaryError("Nobody answers the phone.", delay=1)
            return {"room": len(param), "calls": retry + 1}


@kopf.on.update("tours", field="spec.stops")
async def rearrange(old, new, logger, **_):
    async def cancel(logger, **_):
        logger.info("The old rooms are cancelled.")

    async def rebook(logger, **_):
        logger.info("The new rooms are booked.")

    # These are called right here; the rest of this function runs only when both are done.
    await kopf.execute(fns={"cancel": cancel, "rebook": rebook})
    logger.info(f"From {len(old)} stops to {len(new)}.")
