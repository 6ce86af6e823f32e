"""Keeps the stock of a bar: orders are confirmed if there is enough, and put off if there is not."""

import kopf


@kopf.on.create("orders")
@kopf.on.update("orders", field="spec.bottles")
def check(spec, retry, logger, **_):
    if spec["bottles"] > 12:
        raise kopf.PermanentError("The cellar is not that big.")
    if spec.get("outOfStock"):
        raise kopf.TemporaryError("The wine is on its way.", delay=0.1)
    logger.info(f"{spec['bottles']} bottles are confirmed.")
    return {"confirmed": spec["bottles"], "attempts": retry + 1}


@kopf.on.delete("orders")
def cancel(name, logger, **_):
    logger.info(f"The order {name} is cancelled.")
