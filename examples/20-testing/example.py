"""Confirm orders of a bar if there is enough wine, and delay them if there is not."""

import kopf

THREE_DAYS = 3 * 24 * 60 * 60


@kopf.on.create("orders")
@kopf.on.update("orders", field="spec.bottles")
def check(spec, retry, logger, **_):
    if spec["bottles"] > 12:
        raise kopf.PermanentError("The cellar is not that big.")
    if spec.get("outOfStock"):
        raise kopf.TemporaryError("The wine is on its way.", delay=THREE_DAYS)
    logger.info(f"{spec['bottles']} bottles are confirmed.")
    return {"confirmed": spec["bottles"], "attempts": retry + 1}


@kopf.timer("orders", initial_delay=THREE_DAYS, interval=24 * 60 * 60)
def remind(status, patch, **_):
    if "check" not in status:
        patch.status["reminders"] = status.get("reminders", 0) + 1


@kopf.on.delete("orders")
def cancel(name, logger, **_):
    logger.info(f"The order {name} is cancelled.")
