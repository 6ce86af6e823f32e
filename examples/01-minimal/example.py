"""Greet every new guest, and store the greeting in the status."""

import kopf


@kopf.on.create("guests")
def greet(spec, name, logger, **_):
    greeting = f"Welcome, {spec.get('title', 'dear')} {name}!"
    logger.info(greeting)
    return {"greeting": greeting}
