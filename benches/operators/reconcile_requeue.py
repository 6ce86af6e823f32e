"""R1: reconcilers that are called again after one second."""

import kopf
from reporting import GROUP, Window

window = Window()


@kopf.on.reconcile(*GROUP)
async def reconcile(name, **_):
    window.fire(name)
    return kopf.Requeue(1)
