"""Greets widgets, and logs it."""

import kopf


@kopf.on.create("widgets")
def greet(name, logger, **_):
    logger.info(f"Hello, {name}!")
    return {"greeting": "hello"}
