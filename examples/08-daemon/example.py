"""Lets a candle burn beside its object: it follows the wind, and is put out when the object goes."""

import kopf


@kopf.daemon("candles", cancellation_timeout=5)
async def burn(stopped, spec, logger, **_):
    burnt = 0
    while not stopped and burnt < spec["length"]:
        # The body is live: a change of the wind is seen at the next look.
        burnt += 2 if spec.get("wind") else 1
        await stopped.wait(1)
    logger.info(f"{burnt} cm are burnt; asked to stop: {stopped.reason}.")
    return {"burnt": burnt}
