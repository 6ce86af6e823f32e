"""Records the namespaces in which widgets are created."""

import kopf


@kopf.on.create("widgets")
def created(memo, namespace, **_):
    memo.calls.append(("created", namespace))
