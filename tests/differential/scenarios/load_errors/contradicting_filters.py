"""A handler whose filters contradict each other."""

import kopf


@kopf.on.update("widgets", field="spec.x", value=1, new=2)
def contradicting(**_):
    pass
