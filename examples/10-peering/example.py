"""Run this operator twice: the one with the higher priority works, the other one waits."""

import kopf


@kopf.on.startup()
def introduce(settings, logger, **_):
    settings.peering.lifetime = 15
    logger.info(f"My priority is {settings.peering.priority}.")


@kopf.on.create("shifts")
@kopf.on.update("shifts")
def serve(spec, patch, logger, **_):
    logger.info(f"Working at the {spec['desk']}.")
    patch.status["desk"] = spec["desk"]
