"""Applying the children of an owner. The engine executes it (`kopf-engine/src/apply`)."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

from kopf._intents.causes import DaemonCause, ResourceCause
from kopf._intents.requeue import Requeue
from kopf._objects import client_models, dicts
from kopf._objects.applied import Applied, ApplyFailed, OwnedByAnother
from kopf._objects.bodies import Body
from kopf._objects.dicts import FieldSpec
from kopf._objects.refs import Ref
from kopf._runtime.bridge import ApiRequest, AppliedChildren, CallFailure, Object, __version__
from kopf._runtime.client import conditions
from kopf._runtime.client.api import Api
from kopf._runtime.client.failures import to_exception
from kopf._runtime.client.operations import Operation, plain_body
from kopf._runtime.client.sync_api import SyncApi
from kopf._runtime.context import cause_var, subinvoker_var

K8sObjects = Any
"""An object or (nested) iterables of objects."""
Conflict = Literal["fail", "force", "yield"]
Immutable = Literal["fail", "recreate"]

_OWNER_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "deletionTimestamp",
    "labels",
    "annotations",
    "finalizers",
)

_pruning: weakref.WeakValueDictionary[tuple[int, str], ResourceCause] = weakref.WeakValueDictionary()
"""The causes whose handlers have pruned, by their identities and the owners."""


async def apply(
    children: K8sObjects,
    /,
    *,
    owner: Body | None = None,
    name: str = "",
    prune: bool = False,
    conflict: Conflict = "fail",
    yields: Collection[FieldSpec] = (),
    immutable: Immutable = "fail",
    takeover: Collection[str] = (),
    share: bool = False,
    order: bool = True,
    manager: str | None = None,
    dry_run: bool = False,
    api: Api | None = None,
) -> Applied:
    """Apply the children of an owner, server-side: create them, or change them to what is desired.

    Args:
        children: An object, or nested iterables of objects.
        owner: Their owner; by default, the handled object.
        name: The name of the set of children, for a label.
        prune: Delete the former children of the owner that are not among these.
        conflict: If other managers own some of the fields: fail, take them over (`"force"`), or leave them
            out (`"yield"`).
        yields: Only the fields under these paths may be left out.
        immutable: If an immutable field would change: fail, or delete the object and create it again.
        takeover: The field managers whose fields are taken over before the first apply.
        share: Apply objects that belong to other owners, too, and leave them to these.
        order: Apply the kinds that others need first, and wait for them.
        manager: The field manager; by default, that of the settings, or `kopf-<plural>.<group>` of the owner.
        dry_run: Store nothing.
        api: The client; by default, that of the operator.

    Raises:
        ApplyFailed: Some children could not be applied. Then nothing is pruned.
        Requeue: Some objects are being deleted; they can be applied when they are gone.
        LookupError: The owner does not exist any more, or it is not given outside of handlers.
        ValueError: The children or the options are wrong. Nothing was sent.
    """
    options = _options(name, prune, conflict, yields, immutable, takeover, share, order)
    call = _Call(children, owner, options, is_dry=dry_run)
    if api is None:
        api = await _provider().provide(call.api_arguments, is_async=True)
    view = api if manager is None and not dry_run else api.using(manager=manager, dry_run=dry_run or None)
    with call:
        return await view._run(call.operation)


def apply_sync(
    children: K8sObjects,
    /,
    *,
    owner: Body | None = None,
    name: str = "",
    prune: bool = False,
    conflict: Conflict = "fail",
    yields: Collection[FieldSpec] = (),
    immutable: Immutable = "fail",
    takeover: Collection[str] = (),
    share: bool = False,
    order: bool = True,
    manager: str | None = None,
    dry_run: bool = False,
    api: SyncApi | None = None,
) -> Applied:
    """Apply the children of an owner; the same as `kopf.apply`, for threads.

    Args:
        children: An object, or nested iterables of objects.
        owner: Their owner; by default, the handled object.
        name: The name of the set of children, for a label.
        prune: Delete the former children of the owner that are not among these.
        conflict: If other managers own some of the fields: fail, take them over (`"force"`), or leave them
            out (`"yield"`).
        yields: Only the fields under these paths may be left out.
        immutable: If an immutable field would change: fail, or delete the object and create it again.
        takeover: The field managers whose fields are taken over before the first apply.
        share: Apply objects that belong to other owners, too, and leave them to these.
        order: Apply the kinds that others need first, and wait for them.
        manager: The field manager; by default, that of the settings, or `kopf-<plural>.<group>` of the owner.
        dry_run: Store nothing.
        api: The client; by default, that of the operator.
    """
    options = _options(name, prune, conflict, yields, immutable, takeover, share, order)
    call = _Call(children, owner, options, is_dry=dry_run)
    if api is None:
        api = _provider().provide_sync(call.api_arguments)
    view = api if manager is None and not dry_run else api.using(manager=manager, dry_run=dry_run or None)
    with call:
        return view._run(call.operation)


class _Call:
    """One call: the block is left with an error if the children could not be applied."""

    def __init__(
        self, children: K8sObjects, owner: Body | None, options: dict[str, Any], *, is_dry: bool
    ) -> None:
        super().__init__()
        cause = cause_var.get(None)
        self._cause = cause if isinstance(cause, ResourceCause) else None
        if owner is None:
            if self._cause is None:
                raise LookupError("Owner must be set explicitly, since running outside of a handler.")
            owner = self._cause.body
        self._owner = owner
        self._is_pruning = options["prune"] and not is_dry
        documents = [plain_body(child) for child in _walk(children)]
        document = _owner_document(owner)
        self._namespace: str | None
        if isinstance(document, Object):
            self._namespace = document.namespace
        else:
            self._namespace = document["metadata"].get("namespace")
        self.operation = Operation(ApiRequest.apply_children(document, documents, options), self._convert)

    @property
    def api_arguments(self) -> dict[str, Any]:
        """The arguments of the handler that decide about the client."""
        return {} if self._cause is None else {"namespace": self._cause.body.metadata.namespace}

    def __enter__(self) -> None:
        # A daemon reconciles several times in one call.
        if self._is_pruning and self._cause is not None and not isinstance(self._cause, DaemonCause):
            if _pruning.get(self._key) is self._cause:
                raise ValueError(
                    "The ApplySet of this owner was pruned already while its object was handled: the calls"
                    " would delete each other's objects. Apply all children with one call."
                )
            _pruning[self._key] = self._cause

    def __exit__(self, exc_type: object, exc: object, traceback: object) -> None:
        if exc is not None:
            # The next attempt may follow in the same handler.
            _pruning.pop(self._key, None)

    @property
    def _key(self) -> tuple[int, str]:
        return id(self._cause), str(self._owner.get("metadata", {}).get("uid"))

    def _convert(self, result: AppliedChildren) -> Applied:
        objects = {
            self._object_key(kind, namespace, name): Body(document)
            for kind, namespace, name, document in result.objects()
        }
        failures = result.failures()
        applied = Applied(
            **{name: [_ref(*fields) for fields in fields_of] for name, fields_of in result.references()},
            objects=objects,
            ready=False if failures else functools.partial(_are_ready, objects.values()),
        )
        if not failures:
            return applied
        if all(failure.kind == "Requeue" for _, failure in failures):
            raise Requeue(1, " ".join(failure.text for _, failure in failures))
        errors = [_named(name, failure) for name, failure in failures if failure.kind != "Requeue"]
        texts = "; ".join(str(error) for error in errors)
        raise ApplyFailed(f"Some children could not be applied: {texts}", errors, applied)

    def _object_key(self, kind: str, namespace: str | None, name: str) -> tuple[str, str]:
        is_elsewhere = namespace not in (None, self._namespace)
        return kind, f"{namespace}/{name}" if is_elsewhere else name


def _options(
    name: str,
    prune: bool,
    conflict: Conflict,
    yields: Collection[FieldSpec],
    immutable: Immutable,
    takeover: Collection[str],
    share: bool,
    order: bool,
) -> dict[str, Any]:
    if conflict not in ("fail", "force", "yield"):
        raise ValueError(f"conflict must be 'fail', 'force' or 'yield', not {conflict!r}.")
    if immutable not in ("fail", "recreate"):
        raise ValueError(f"immutable must be 'fail' or 'recreate', not {immutable!r}.")
    for option, value in (("yields", yields), ("takeover", takeover)):
        if isinstance(value, str):
            raise TypeError(f"{option} must be a list, not a string.")
    if yields and conflict == "force":
        raise ValueError("With conflict='force', no fields are left out: pass either that or yields.")
    paths = ["." + ".".join(dicts.parse_field(field)).removeprefix(".") for field in yields]
    return {
        "name": name,
        "prune": prune,
        "conflict": "yield" if paths else conflict,
        "yields": paths or None,
        "recreate": immutable == "recreate",
        "takeover": list(takeover),
        "share": share,
        "order": order,
        "version": __version__,
    }


def _walk(children: K8sObjects) -> Iterator[Any]:
    if children is None:
        return
    is_object = isinstance(children, Mapping) or client_models.is_model(children)
    if is_object or client_models.is_pykube_object(children):
        yield children
    elif isinstance(children, Iterable) and not isinstance(children, (str, bytes)):
        for child in children:
            yield from _walk(child)
    else:
        raise TypeError(f"A child must be a mapping or a model, not {type(children).__name__}.")


def _owner_document(owner: Body) -> Object | dict[str, Any]:
    """The owner for the engine: the native object of handlers, or a dict with the parts that matter."""
    source = getattr(owner, "_src", None)
    if isinstance(source, Object):
        return source
    metadata = owner.get("metadata", {})
    return {
        "apiVersion": owner.get("apiVersion"),
        "kind": owner.get("kind"),
        "metadata": {key: metadata[key] for key in _OWNER_METADATA if key in metadata},
    }


def _are_ready(bodies: Iterable[Body]) -> bool:
    return all(conditions.ready(body) for body in bodies)


def _provider() -> Any:
    invoker = subinvoker_var.get(None)
    if invoker is None or invoker.api is None:
        raise RuntimeError("kopf.apply() needs a client: call it in a handler, or pass api=...")
    return invoker.api


def _ref(group: str, kind: str, name: str, namespace: str | None, uid: str | None) -> Ref:
    return Ref(f"{kind}.{group}" if group else kind, name, namespace, uid)


def _named(name: str, failure: CallFailure) -> Exception:
    if failure.kind == "OwnedByAnother":
        return OwnedByAnother(failure.text)
    error = to_exception(failure)
    error.add_note(f"The object is {name}.")
    return error
