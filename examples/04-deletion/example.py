"""Clean a room before its deletion: the object stays until the handler succeeds."""

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
def log_deletion(name, logger, **_):
    logger.info(f"Goodbye, room {name}.")
