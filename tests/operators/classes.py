"""An operator of backups in the style of classes and of pykube-ng, which runs itself, with its own registry.

Its handlers are methods. It runs in a thread with a separate event loop, while the main thread does other
work, and it imports private names, as operators do.

Usage: python classes.py SITE-PACKAGES
"""

import asyncio
import os
import signal
import sys
import threading
import warnings

sys.path.append(sys.argv[1])
warnings.simplefilter("ignore", DeprecationWarning)

import kopf  # noqa: E402
import pykube  # noqa: E402
from kopf._cogs.structs.bodies import Body, RawBody  # noqa: E402
from kopf._cogs.structs.diffs import diff as compare  # noqa: E402
from kopf._core.engines.indexing import OperatorIndexers  # noqa: E402
from kopf._core.intents.registries import SmartOperatorRegistry  # noqa: E402


class Backup(pykube.objects.NamespacedAPIObject):
    """A backup as pykube knows it."""

    version = "operators.testing.kopf.dev/v1"
    endpoint = "backups"
    kind = "Backup"


class Controller:
    """The common part of controllers: registers those methods that are called as handlers."""

    resource: str

    def __init__(self, registry: kopf.OperatorRegistry, api: pykube.HTTPClient) -> None:
        self.registry, self.api = registry, api
        for name, decorator in {
            "on_create": kopf.on.create,
            "on_update": kopf.on.update,
            "on_delete": kopf.on.delete,
            "on_event": kopf.on.event,
        }.items():
            if hasattr(self, name):
                decorator(self.resource, registry=registry)(getattr(self, name))


class BackupController(Controller):
    """Backups are copied to config maps."""

    resource = "backups"

    def on_create(self, body: Body, spec: kopf.Spec, patch: kopf.Patch, logger: kopf.Logger, **_) -> dict:
        raw: RawBody = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"what": spec["what"]}}
        kopf.adopt(raw)
        pykube.ConfigMap(self.api, raw).create()
        mine = Backup.objects(self.api).filter(namespace=body.meta.namespace).get(name=body.meta.name)
        patch.status["same"] = not compare(mine.obj["spec"], dict(spec))
        return {"kind": mine.kind}

    async def on_update(self, diff: kopf.Diff, old, new, patch: kopf.Patch, **_) -> None:
        patch.status["changes"] = [f"{op} {'.'.join(field)}: {old} => {new}" for op, field, old, new in diff]

        def stamp(raw: RawBody) -> None:
            raw["metadata"].setdefault("annotations", {})["stamped"] = "yes"

        patch.fns.append(stamp)

    @kopf.on.startup()
    async def never(self, **_) -> None:
        """Declared in the default registry, which is not used here."""
        raise kopf.PermanentError("The default registry is used.")

    def on_event(self, type: str | None, name: str, memo: kopf.Memo, **_) -> None:
        memo.setdefault("types", []).append(type)


def main() -> None:
    registry = SmartOperatorRegistry()
    config = pykube.KubeConfig.from_file(os.environ["KUBECONFIG"])
    BackupController(registry, pykube.HTTPClient(config))
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.peering.standalone = True
    ready, stop = threading.Event(), threading.Event()
    kopf.configure(verbose=True, log_format=kopf.LogFormat.PLAIN, log_prefix=True)

    def run() -> None:
        coroutine = kopf.operator(
            registry=registry,
            settings=settings,
            indexers=OperatorIndexers(),
            namespaces=[os.environ["NAMESPACE"]],
            ready_flag=ready,
            stop_flag=stop,
            memo=kopf.Memo(),
            identity="me",
        )
        asyncio.run(coroutine)

    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    print("READY", flush=True)
    while thread.is_alive():
        thread.join(0.2)
    print("BYE", flush=True)


if __name__ == "__main__":
    main()
