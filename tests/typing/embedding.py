"""Everything around handlers: embedding, storages and servers of users, testing, private modules."""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Collection, Iterable

import kopf
from kopf.testing import KopfRunner


class Storage(kopf.ProgressStorage):
    """A storage of a user."""

    def fetch(self, *, key: kopf.HandlerId, body: kopf.Body) -> kopf.ProgressRecord | None:
        return kopf.ProgressRecord(retries=1)

    def store(
        self, *, key: kopf.HandlerId, record: kopf.ProgressRecord, body: kopf.Body, patch: kopf.Patch
    ) -> None: ...

    def purge(self, *, key: kopf.HandlerId, body: kopf.Body, patch: kopf.Patch) -> None: ...

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None: ...

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return super().clear(essence=essence)


class DiffBase(kopf.DiffBaseStorage):
    """Another one."""

    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None
    ) -> kopf.BodyEssence:
        return super().build(body=body, extra_fields=extra_fields)

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None: ...


async def serve(fn: kopf.WebhookFn) -> AsyncIterator[kopf.WebhookClientConfig]:
    """A webhook server of a user."""
    yield {"url": "https://x", "caBundle": None}


async def main() -> None:
    settings = kopf.OperatorSettings()
    settings.admission.server = serve
    settings.persistence.progress_storage = Storage()
    settings.persistence.diffbase_storage = DiffBase(ignored_fields=["spec.x"])
    settings.execution.executor = concurrent.futures.ThreadPoolExecutor()
    registry: kopf.OperatorRegistry = kopf.OperatorRegistry()
    ready, stop = asyncio.Event(), threading.Event()
    await kopf.operator(
        registry=registry,
        settings=settings,
        namespaces=["a", "b-*"],
        ready_flag=ready,
        stop_flag=stop,
        memo=kopf.Memo(a=1),
        lifecycle=kopf.lifecycles.all_at_once,
    )
    tasks: Collection[asyncio.Task[None]] = await kopf.spawn_tasks(clusterwide=True)
    await kopf.run_tasks(tasks, ignored=frozenset())


def run() -> None:
    kopf.configure(verbose=True, log_format=kopf.LogFormat.JSON, log_refkey="x")
    kopf.run(clusterwide=True, status_address="0.0.0.0:8080", priority=5, standalone=True)
    with KopfRunner(["run", "-A"], timeout=5, settings=kopf.OperatorSettings()) as runner:
        pass
    output: str = runner.stdout
    code: int = runner.exit_code
    print(output, code, runner.exception)


class Controller:
    """Handlers as methods."""

    def handle(self, spec: kopf.Spec, **_: object) -> None: ...


kopf.on.create("x")(Controller().handle)
owner: kopf.OwnerReference = kopf.build_owner_reference(kopf.Body({}))
reference: kopf.ObjectReference = kopf.build_object_reference(kopf.Body({}))
info = kopf.ConnectionInfo(server="https://x", token="t", ca_data=b"x", priority=1)
error: Exception = kopf.LoginError("x")
item: kopf.DiffItem = kopf.Diff([])[0]
several: object = kopf.Diff([])[0:2]
