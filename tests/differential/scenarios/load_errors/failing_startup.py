"""A startup handler that fails."""

import kopf


@kopf.on.startup()
def failing(**_):
    raise kopf.PermanentError("cannot start")
