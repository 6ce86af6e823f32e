"""Cleans the room before it disappears: the object stays until the handler is done."""

import kopf


@kopf.on.create("rooms")
def open_room(name, **_):
    return f"Room {name} is open."


@kopf.on.delete("rooms")
def clean(spec, name, retry, logger, **_):
    if spec.get("occupied"):
        raise kopf.TemporaryError(f"Room {name} is occupied.", delay=2)
    logger.info(f"Room {name} is clean after {retry + 1} visit(s).")


@kopf.on.delete("rooms", optional=True)
def say_goodbye(name, logger, **_):
    logger.info(f"Goodbye, room {name}.")
