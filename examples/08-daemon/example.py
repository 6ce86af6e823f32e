"""Burn a candle in the background as long as its object exists; wind makes it burn faster."""

import kopf


@kopf.daemon("candles", cancellation_timeout=5)
async def burn(stopped, spec, logger, **_):
    burnt = 0
    while not stopped and burnt < spec["length"]:
        # The body is live: the loop sees a change of the wind.
        burnt += 2 if spec.get("wind") else 1
        await stopped.wait(1)
    logger.info(f"{burnt} cm are burnt; asked to stop: {stopped.reason}.")
    return {"burnt": burnt}
