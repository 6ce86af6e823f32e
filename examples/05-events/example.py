"""Listens to the doorbell: every event as it comes, with no state kept and nothing written to the object."""

import kopf

COUNTS: dict[str, int] = {}


@kopf.on.startup()
def plug_in(logger, **_):
    logger.info("The doorbell is plugged in.")


@kopf.on.event("doorbells", labels={"muted": kopf.ABSENT})
def ring(type, name, logger, **_):
    COUNTS[name] = COUNTS.get(name, 0) + 1
    logger.info(f"{name}: {type or 'EXISTING'} (heard {COUNTS[name]} times)")


@kopf.on.cleanup()
def unplug(logger, **_):
    logger.info(f"Rings in total: {sum(COUNTS.values())}.")
