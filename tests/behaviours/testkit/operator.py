"""Greets widgets."""

import kopf


@kopf.on.create("widgets")
def greet(name, **_):
    return {"greeting": f"Hello, {name}!"}
