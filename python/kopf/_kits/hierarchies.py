"""Functions that set owner references, labels, names, and namespaces of objects.

All functions change the given objects in place: dicts, models of Kubernetes clients, pykube objects, or
nested iterables of them. Anything else is a `TypeError`. The default owner is the object that is being
handled; outside of handlers, it is a `LookupError`.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, cast

from kopf._intents.causes import ResourceCause
from kopf._objects import client_models, dicts
from kopf._objects.bodies import Body
from kopf._objects.dicts import UNSET, FieldSpec, Unset
from kopf._objects.references import OwnerReference, build_owner_reference
from kopf._runtime.context import cause_var

K8sObjects = Any
"""An object or (nested) iterables of objects."""


def append_owner_reference(
    objs: K8sObjects,
    owner: Body | None = None,
    *,
    controller: bool | None = True,
    block_owner_deletion: bool | None = True,
) -> None:
    """Make the objects owned: they are deleted with their owner. An owner with the same uid is not added
    again.

    Args:
        objs: An object, or nested iterables of objects. They are changed in place.
        owner: The body of the owner; by default, the handled object.
        controller: The field `controller`; None: the field is absent.
        block_owner_deletion: The field `blockOwnerDeletion`; None: the field is absent.

    Raises:
        LookupError: There is no owner: it is not given outside of handlers.
        TypeError: Something else than an object is given.
    """
    owner = _owner_or_current(owner)
    ref = build_owner_reference(owner, controller=controller, block_owner_deletion=block_owner_deletion)
    for obj in _walk(objs):
        if isinstance(obj, MutableMapping):
            refs = obj.setdefault("metadata", {}).setdefault("ownerReferences", [])
            if not any(other.get("uid") == ref["uid"] for other in refs):
                refs.append(ref)
        else:
            metadata = _model_metadata(obj)
            if metadata.owner_references is None:
                metadata.owner_references = []
            if not any(other.uid == ref["uid"] for other in metadata.owner_references):
                metadata.owner_references.append(_model_reference(obj, ref))


def remove_owner_reference(objs: K8sObjects, owner: Body | None = None) -> None:
    """Make the objects not owned by the owner anymore; it is recognised by its uid.

    Args:
        objs: An object, or nested iterables of objects. They are changed in place.
        owner: The body of the owner; by default, the handled object.

    Raises:
        LookupError: There is no owner: it is not given outside of handlers.
        TypeError: Something else than an object is given.
    """
    owner = _owner_or_current(owner)
    uid = build_owner_reference(owner).get("uid")
    for obj in _walk(objs):
        if isinstance(obj, MutableMapping):
            refs = obj.setdefault("metadata", {}).setdefault("ownerReferences", [])
            refs[:] = [ref for ref in refs if ref.get("uid") != uid]
        else:
            metadata = _model_metadata(obj)
            refs = metadata.owner_references or []
            metadata.owner_references = [ref for ref in refs if ref.uid != uid]


def label(
    objs: K8sObjects,
    labels: Mapping[str, str | None] | Unset = UNSET,
    *,
    forced: bool = False,
    nested: str | Iterable[FieldSpec] | None = None,
    force: bool | None = None,
) -> None:
    """Add labels to the objects and to their nested parts: the given ones, or those of the owner.

    The labels that are there already are kept, unless forced. The nested parts that do not exist are skipped.

    Args:
        objs: An object, or nested iterables of objects. They are changed in place.
        labels: The labels and their values; by default, those of the handled object.
        forced: Whether to replace labels that exist already.
        nested: The fields with nested objects that get the labels, too, such as `spec.template`: a path or
            several.
        force: Deprecated: the same as `forced`.

    Raises:
        LookupError: No labels are given outside of handlers.
        TypeError: Something else than an object is given.
    """
    if force is not None:
        warnings.warn(
            "force= is deprecated in kopf.label(); use forced=...", DeprecationWarning, stacklevel=2
        )
        forced = force
    if labels is UNSET:
        labels = _owner_or_current(None).get("metadata", {}).get("labels", {})
    for obj in _walk(objs, nested=_nested_fields(nested)):
        if isinstance(obj, MutableMapping):
            existing = obj.setdefault("metadata", {}).setdefault("labels", {})
        else:
            metadata = _model_metadata(obj)
            if metadata.labels is None:
                metadata.labels = {}
            existing = metadata.labels
        for key, value in cast("Mapping[str, str | None]", labels).items():
            if forced:
                existing[key] = value
            else:
                existing.setdefault(key, value)


def harmonize_naming(
    objs: K8sObjects,
    name: str | Unset | None = UNSET,
    *,
    forced: bool = False,
    strict: bool = False,
) -> None:
    """Name the objects: after the given name, or after the owner; with a generated suffix, unless strict.

    The objects that have names are left as they are, unless forced.

    Args:
        objs: An object, or nested iterables of objects. They are changed in place.
        name: The name; by default, that of the handled object.
        forced: Whether to rename objects that have names.
        strict: Whether to use exactly this name; otherwise, the server adds a generated suffix.

    Raises:
        LookupError: There is no name, or it is not given outside of handlers.
        TypeError: Something else than an object is given.
    """
    if name is UNSET:
        name = _owner_or_current(None).get("metadata", {}).get("name", None)
    if name is None:
        raise LookupError("Name must be set explicitly: couldn't find it automatically.")
    for obj in _walk(objs):
        if isinstance(obj, MutableMapping):
            _name_dict(obj.setdefault("metadata", {}), cast(str, name), forced=forced, strict=strict)
        else:
            _name_model(_model_metadata(obj), cast(str, name), forced=forced, strict=strict)


def _name_dict(metadata: MutableMapping[str, Any], name: str, *, forced: bool, strict: bool) -> None:
    if not forced and ("name" in metadata or "generateName" in metadata):
        return
    metadata.pop("generateName" if strict else "name", None)
    metadata["name" if strict else "generateName"] = name if strict else f"{name}-"


def _name_model(metadata: Any, name: str, *, forced: bool, strict: bool) -> None:
    if not forced and (metadata.name is not None or metadata.generate_name is not None):
        return
    metadata.name = name if strict else None
    metadata.generate_name = None if strict else f"{name}-"


def adjust_namespace(
    objs: K8sObjects,
    namespace: str | Unset | None = UNSET,
    *,
    forced: bool = False,
) -> None:
    """Put the objects to the given namespace, or to that of the owner; those that have one are kept, unless
    forced.

    Args:
        objs: An object, or nested iterables of objects. They are changed in place.
        namespace: The namespace; by default, that of the handled object. None: cluster-scoped.
        forced: Whether to replace namespaces that exist already.

    Raises:
        LookupError: No namespace is given outside of handlers.
        TypeError: Something else than an object is given.
    """
    if namespace is UNSET:
        namespace = _owner_or_current(None).get("metadata", {}).get("namespace", None)
    for obj in _walk(objs):
        if isinstance(obj, MutableMapping):
            metadata = obj.setdefault("metadata", {})
            if forced or metadata.get("namespace") is None:
                metadata["namespace"] = namespace
        else:
            metadata = _model_metadata(obj)
            if forced or metadata.namespace is None:
                metadata.namespace = namespace


def adopt(
    objs: K8sObjects,
    owner: Body | None = None,
    *,
    forced: bool = False,
    strict: bool = False,
    nested: str | Iterable[FieldSpec] | None = None,
) -> None:
    """Make the objects children of the owner in all regards: ownership, names, the namespace, labels.

    Args:
        objs: An object, or nested iterables of objects. They are changed in place.
        owner: The body of the owner; by default, the handled object.
        forced: Whether to replace names, namespaces and labels that exist already.
        strict: Whether to use exactly the name of the owner; otherwise, the server adds a generated suffix.
        nested: The fields with nested objects that get the labels, too, such as `spec.template`: a path or
            several.

    Raises:
        LookupError: There is no owner: it is not given outside of handlers.
        TypeError: Something else than an object is given.
    """
    # The objects are walked several times, and one-shot iterables are not for that.
    walkable = list(objs) if isinstance(objs, Iterator) else objs
    real_owner = _owner_or_current(owner)
    metadata = real_owner.get("metadata", {})
    append_owner_reference(walkable, owner=real_owner)
    harmonize_naming(walkable, name=metadata.get("name", None), forced=forced, strict=strict)
    adjust_namespace(walkable, namespace=metadata.get("namespace", None), forced=forced)
    label(walkable, labels=metadata.get("labels", {}), nested=nested, forced=forced)


def _owner_or_current(owner: Body | None) -> Body:
    if owner is not None:
        return owner
    cause = cause_var.get(None)
    if not isinstance(cause, ResourceCause):
        raise LookupError("Owner must be set explicitly, since running outside of a handler.")
    return cause.body


def _walk(objs: K8sObjects, *, nested: Collection[FieldSpec] | None = None) -> Iterator[Any]:
    for obj in dicts.walk(objs, nested=nested):
        if not isinstance(obj, MutableMapping) and not client_models.is_model(obj):
            raise TypeError(f"K8s object class is not supported: {type(obj)}")
        yield obj


def _nested_fields(nested: str | Iterable[FieldSpec] | None) -> Collection[FieldSpec] | None:
    return [nested] if isinstance(nested, str) else list(nested) if nested is not None else None


# The classes of a library are taken from the object itself: there are two libraries, and both can be absent.
def _model_metadata(obj: Any) -> Any:
    if obj.metadata is None:
        obj.metadata = _sibling_class(obj, "V1ObjectMeta")()
    return obj.metadata


def _model_reference(obj: Any, ref: OwnerReference) -> Any:
    return _sibling_class(obj, "V1OwnerReference")(
        api_version=ref["apiVersion"],
        kind=ref["kind"],
        name=ref["name"],
        uid=ref["uid"],
        controller=ref["controller"],
        block_owner_deletion=ref["blockOwnerDeletion"],
    )


def _sibling_class(obj: Any, name: str) -> Any:
    import importlib

    modules = (
        cls.__module__ for cls in type(obj).__mro__ if cls.__module__.startswith(client_models.MODEL_PREFIXES)
    )
    library = next(modules).split(".", 1)[0]
    return getattr(importlib.import_module(f"{library}.client"), name)
