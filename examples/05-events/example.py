"""Log every watch event of a doorbell, without state and without writes to the object."""

import kopf

COUNTS: dict[str, int] = {}


@kopf.on.startup()
def plug_in(logger, **_):
    logger.info("The doorbell is plugged in.")


@kopf.on.event("doorbells", labels={"muted": kopf.ABSENT})
def ring(type, name, logger, **_):
    COUNTS[name] = COUNTS.get(name, 0) + 1
    logger.info(f"{name}: {type or 'EXISTING'} ({COUNTS[name]} rings)")


@kopf.on.cleanup()
def unplug(logger, **_):
    logger.info(f"Rings in total: {sum(COUNTS.values())}.")
