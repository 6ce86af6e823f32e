"""Bakes: heats an oven step by step, and turns it off when nobody has touched it for a while."""

import kopf

STEP = 50


@kopf.timer("ovens", interval=1)
def heat(spec, status, patch, **_):
    now = status.get("temperature", 20)
    if now != spec["target"]:
        patch.status["temperature"] = min(now + STEP, spec["target"])


@kopf.timer("ovens", idle=10)
def turn_off(spec, patch, logger, **_):
    if spec["target"] != 0:
        logger.info("Nobody has touched the oven for 10 seconds.")
        patch.spec["target"] = 0


# With a handler of changes, what was seen last is stored: only changes of the spec count as touching.
@kopf.on.update("ovens", field="spec.target")
def tell(old, new, logger, **_):
    logger.info(f"The target is {new} degrees now, not {old}.")
