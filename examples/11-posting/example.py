"""Post Kubernetes events about a letter, so that `kubectl describe` shows them."""

import kopf


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.reporting_component = "reception"


@kopf.on.create("letters")
def deliver(body, spec, **_):
    kopf.info(body, reason="Sorted", message=f"The letter goes to {spec['to']}.")
    try:
        knock(spec["to"])
    except LookupError:
        kopf.exception(body, message="Cannot deliver:")
        kopf.warn(body, reason="Kept", message="The letter is kept at the desk.")
    return "kept"


def knock(room):
    raise LookupError(f"no answer in {room}")
