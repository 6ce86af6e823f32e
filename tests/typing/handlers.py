"""All kinds of handlers with their arguments, as authors of typed operators write them."""

import datetime
from collections.abc import Mapping, MutableMapping
from typing import Any

import kopf


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, logger: kopf.Logger, **_: Any) -> None:
    settings.posting.level = 30
    settings.peering.priority = 5
    settings.execution.max_workers = 5
    settings.networking.error_backoffs = [1, 2.5, 3]
    settings.watching.label_selectors["pods"] = "a=b"
    settings.watching.field_selectors["apps", "v1", "deployments"] = "metadata.name=x"
    settings.persistence.finalizer = "example.com/finalizer"
    settings.persistence.progress_storage = kopf.MultiProgressStorage(
        [kopf.StatusProgressStorage(), kopf.AnnotationsProgressStorage(prefix="example.com")]
    )
    settings.persistence.diffbase_storage = kopf.StatusDiffBaseStorage(field="status.last")
    settings.admission.server = kopf.WebhookServer(port=8443)
    memo.anything = 5
    logger.info("Hello.")


@kopf.on.cleanup()
def stop(**_: Any) -> None: ...


@kopf.on.login(errors=kopf.ErrorsMode.PERMANENT)
def log_in(logger: kopf.Logger, settings: kopf.OperatorSettings, **kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(logger=logger, settings=settings, **kwargs)


@kopf.on.login()
async def log_in_async(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return await kopf.login_via_async_client(**kwargs)


@kopf.on.probe(id="now")
def get_time(**_: Any) -> str:
    return datetime.datetime.now().isoformat()


@kopf.index("services")
def services(name: str, labels: kopf.Labels, **_: Any) -> Mapping[str, str | None]:
    return {name: labels.get("app")}


@kopf.index("pods", labels={"app": kopf.PRESENT, "tier": lambda value, **_: value == "web"})
def pods(name: str, namespace: str | None, spec: kopf.Spec, **_: Any) -> Mapping[tuple[str | None, str], str]:
    return {(namespace, name): spec["nodeName"]}


@kopf.on.create("kopf.dev", "v1", "kopfexamples", annotations={"a": kopf.ABSENT, "b": "c"}, retries=3)
@kopf.on.resume("kopfexamples", deleted=True, param={"a": 1})
def create(
    body: kopf.Body,
    spec: kopf.Spec,
    meta: kopf.Meta,
    status: kopf.Status,
    patch: kopf.Patch,
    labels: kopf.Labels,
    annotations: kopf.Annotations,
    name: str,
    namespace: str | None,
    uid: str,
    retry: int,
    started: datetime.datetime,
    runtime: datetime.timedelta,
    logger: kopf.Logger,
    memo: kopf.Memo,
    resource: kopf.Resource,
    pods: kopf.Index[tuple[str | None, str], str] | None = None,
    param: Any = None,
    **_: Any,
) -> dict[str, int]:
    size: int = spec.get("size", 0)
    labelled: str | None = meta.labels.get("x")
    deleted: str | None = meta.deletion_timestamp
    patch.status["a"] = {"b": [labelled, deleted, *labels, *annotations]}
    patch.meta.labels["x"] = None
    patch.spec.setdefault("a", 1)
    patch.fns.append(change)
    for store in (pods or {}).values():
        logger.debug("%s %s", len(store), list(store))
    group, version, plural = resource
    kopf.info(body, reason=f"{group}{version}{plural}", message=str(status.get("x")))
    memo.setdefault("sizes", []).append(size + retry + runtime.seconds)
    return {"size": size}


def change(body: kopf.RawBody) -> None:
    body.setdefault("spec", {})["x"] = 1


@kopf.on.update("kopfexamples", field="spec.size", old=kopf.PRESENT, new=lambda value, **_: value > 1)
async def update(
    old: kopf.BodyEssence | Any | None, new: Any, diff: kopf.Diff, reason: str, patch: kopf.Patch, **_: Any
) -> None:
    for op, field, before, after in diff:
        patch.status[".".join(field)] = f"{op} {before} {after} {diff[0].operation is kopf.DiffOperation.ADD}"
    if reason == kopf.Reason.UPDATE:
        raise kopf.TemporaryError("Later.", delay=5)


@kopf.on.field("kopfexamples", field=("spec", "size"), when=kopf.all_([lambda **_: True]))
def grow(old: Any, new: Any, **_: Any) -> None: ...


@kopf.on.delete("kopfexamples", optional=True, timeout=60.5)
async def delete(**_: Any) -> None:
    raise kopf.PermanentError("No.")


@kopf.on.event(kopf.EVERYTHING)
def watch(event: kopf.RawEvent, type: str | None, body: kopf.Body, **_: Any) -> None:
    kind: kopf.RawEventType = event["type"]
    print(kind, event["object"].get("metadata", {}).get("name"), type)


@kopf.daemon("kopfexamples", cancellation_timeout=1.0, initial_delay=lambda **_: 1.0)
async def follow(stopped: kopf.DaemonStopped, spec: kopf.Spec, **_: Any) -> None:
    while not stopped:
        await stopped.wait(5.0)
    print(stopped.reason, spec)


@kopf.daemon("kopfexamples")
def follow_in_thread(stopped: kopf.DaemonStopped, **_: Any) -> None:
    while not stopped.is_set():
        stopped.wait(1)


@kopf.timer("kopfexamples", interval=5, sharp=True, idle=1, initial_delay=2)
async def tick(status: kopf.Status, **_: Any) -> None: ...


@kopf.on.validate("kopfexamples", operations=["CREATE", "UPDATE"], ignore_failures=True)
def validate(
    spec: kopf.Spec,
    warnings: list[str],
    dryrun: bool,
    userinfo: kopf.UserInfo,
    sslpeer: kopf.SSLPeer,
    headers: kopf.Headers,
    **_: Any,
) -> None:
    warnings.append(f"{userinfo['username']} {headers.get('x')} {sslpeer} {dryrun}")
    raise kopf.AdmissionError("No.", code=400)


@kopf.on.mutate("kopfexamples", subresource="status")
async def mutate(patch: kopf.Patch, **_: Any) -> None:
    patch.spec["x"] = 1


@kopf.on.create("kopfexamples", id="parent")
async def parent(spec: kopf.Spec, **_: Any) -> None:
    @kopf.subhandler(id="one")
    async def one(**_: Any) -> None: ...

    def two(spec: kopf.Spec, **_: Any) -> None: ...

    kopf.register(fn=two, id="two")
    await kopf.execute(fns={kopf.HandlerId("three"): two, kopf.HandlerId("four"): one})
    await kopf.execute(fns=[two])
    metadata: MutableMapping[str, Any] = {}
    kopf.adopt([metadata], nested=["spec.template", ("a", "b")])
