"""Patch of an object, to be filled by handlers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from kopf._objects import dicts
from kopf._objects.bodies import Body
from kopf._objects.typedefs import RawBody
from kopf._objects.views import MutableMappingView

PatchFn = Callable[[RawBody], None]
"""A function that changes the raw object in place; it might be called several times, each time on a newer
state.
"""


class MetaPatch(MutableMappingView[str, Any]):
    """The `metadata` of a patch."""

    def __init__(self, src: MutableMapping[str, Any], /) -> None:
        super().__init__(src, ("metadata",))
        self._labels: MutableMapping[str, str | None] = MutableMappingView(src, ("metadata", "labels"))
        self._annotations: MutableMapping[str, str | None] = MutableMappingView(
            src, ("metadata", "annotations")
        )

    @property
    def labels(self) -> MutableMapping[str, str | None]:
        """The labels to be set, or to be removed (None)."""
        return self._labels

    @property
    def annotations(self) -> MutableMapping[str, str | None]:
        """The annotations to be set, or to be removed (None)."""
        return self._annotations


class SpecPatch(MutableMappingView[str, Any]):
    """The `spec` of a patch."""

    def __init__(self, src: MutableMapping[str, Any], /) -> None:
        super().__init__(src, ("spec",))


class StatusPatch(MutableMappingView[str, Any]):
    """The `status` of a patch."""

    def __init__(self, src: MutableMapping[str, Any], /) -> None:
        super().__init__(src, ("status",))


class Patch(dict[str, Any]):
    """A merge-patch under construction: a dict where None removes, and functions that edit the object.

    The stanzas are created when they are written to. The functions are applied after the dict.

    Args:
        src: The initial content.
        body: The object, for `as_json_patch`.
        fns: The initial functions.
    """

    def __init__(
        self,
        src: dict[str, Any] | None = None,
        /,
        body: Body | None = None,
        fns: Iterable[PatchFn] = (),
    ) -> None:
        if src:
            super().__init__(src)
        # Views refer back to the patch: unused ones would only be work for the garbage collector.
        self._meta: MetaPatch | None = None
        self._spec: SpecPatch | None = None
        self._status: StatusPatch | None = None
        self._original = body
        self._fns: list[PatchFn] = [*src._fns, *fns] if isinstance(src, Patch) else [*fns]

    def __repr__(self) -> str:
        texts = [super().__repr__()] if len(self) else []
        texts += [f"fns={self._fns!r}"] if self._fns else []
        return f"{type(self).__name__}({', '.join(texts)})"

    def __bool__(self) -> bool:
        return len(self) > 0 or bool(self._fns)

    def __copy__(self) -> Patch:
        return type(self)(self, body=self._original)

    def __deepcopy__(self, memo: dict[int, Any]) -> Patch:
        return type(self)(copy.deepcopy(dict(self), memo), body=self._original, fns=self._fns)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self._original, tuple(self._fns))

    def clear(self) -> None:
        """Forget everything: both the dict and the functions."""
        super().clear()
        self._fns.clear()

    @property
    def fns(self) -> list[PatchFn]:
        """The functions to be applied to the object; the list can be changed in place."""
        return self._fns

    @property
    def metadata(self) -> MetaPatch:
        """The metadata to be patched."""
        if self._meta is None:
            self._meta = MetaPatch(self)
        return self._meta

    @property
    def meta(self) -> MetaPatch:
        """The metadata to be patched; the same as `metadata`."""
        return self.metadata

    @property
    def spec(self) -> SpecPatch:
        """The spec to be patched."""
        if self._spec is None:
            self._spec = SpecPatch(self)
        return self._spec

    @property
    def status(self) -> StatusPatch:
        """The status to be patched."""
        if self._status is None:
            self._status = StatusPatch(self)
        return self._status

    def as_json_patch(self, body: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Express the patch as RFC 6902 operations on the body: the given one or the one of the patch.

        Changes that change nothing vanish. Integers are exact, but one beyond 64 bits does not change another
        one that is the same float, and so the same for the API server. Without any body, a non-empty patch
        raises `ValueError`; so do values that are not JSON, or they raise `TypeError`.

        Args:
            body: The object; by default, that of the patch.
        """
        if not self:
            return []
        original = body if body is not None else self._original
        if original is None:
            raise ValueError("Cannot build a JSON-patch without the original body as a reference.")
        old = copy.deepcopy(dict(original))
        new = copy.deepcopy(old)
        self._apply(new, (), self)
        for fn in self._fns:
            fn(new)  # type: ignore[arg-type]
        from kopf._objects import rules

        return rules.json_patch(old, new)

    def _apply(self, target: dict[str, Any], path: dicts.FieldPath, value: Any) -> None:
        if value is None:
            dicts.remove(target, path)
        elif isinstance(value, Mapping):
            for key, val in value.items():
                self._apply(target, (*path, key), val)
        else:
            dicts.ensure(target, path, copy.deepcopy(value))


def is_empty(patch: Patch) -> bool:
    """Whether the patch changes nothing: the same as its truth value, without calls of its methods."""
    return len(patch) == 0 and not patch._fns


def release_views(patch: Patch) -> None:
    """Drop the views of the patch: they refer back to the patch, and so keep it in memory."""
    patch._meta = patch._spec = patch._status = None
