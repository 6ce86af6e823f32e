"""Heat an oven step by step, and turn it off if its target does not change for a while."""

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
        logger.info("The target has not changed for 10 seconds.")
        patch.spec["target"] = 0


# With a change handler, Kopf stores the last handled state: only changes of the spec restart the idle time.
@kopf.on.update("ovens", field="spec.target")
def log_target(old, new, logger, **_):
    logger.info(f"The target is {new} degrees now, not {old}.")
