"""Book every stop of a tour with a separate sub-handler; the tour is done when all stops are."""

import kopf

RUINS = {"atlantis"}
SLOW_TO_ANSWER = {"porto"}


@kopf.on.create("tours")
def plan(spec, **_):
    # Kopf calls these after this function returns.
    for stop in spec.get("stops", []):

        @kopf.subhandler(id=stop, param=stop)
        def book(param, retry, **_):
            if param in RUINS:
                raise kopf.PermanentError("There are no hotels.")
            if param in SLOW_TO_ANSWER and retry < 2:
                raise kopf.TemporaryError("The hotel does not answer.", delay=1)
            return {"room": len(param), "calls": retry + 1}


@kopf.on.update("tours", field="spec.stops")
async def rearrange(old, new, logger, **_):
    async def cancel(logger, **_):
        logger.info("The old rooms are cancelled.")

    async def rebook(logger, **_):
        logger.info("The new rooms are booked.")

    # Kopf calls these now; the rest of this function runs only when both are done.
    await kopf.execute(fns={"cancel": cancel, "rebook": rebook})
    logger.info(f"From {len(old)} stops to {len(new)}.")
