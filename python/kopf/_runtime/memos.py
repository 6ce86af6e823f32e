"""Registry of the memos of objects, and of the patch functions that wait for the next cycle."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from kopf._objects.memos import AnyMemo, Memo
from kopf._objects.patches import PatchFn
from kopf._objects.resources import Resource

MAX_REVIEWED = 10_000
"""The limit of memos of objects that were only seen in admission reviews."""


class MemoRegistry:
    """The memos of objects, and their deferred patch functions, as long as the objects exist."""

    def __init__(self, memo: AnyMemo) -> None:
        super().__init__()
        self._memo = memo
        self._memos: dict[str, AnyMemo] = {}
        self._reviewed: dict[str, AnyMemo] = {}
        self._deferred_fns: dict[str, dict[Resource | None, list[PatchFn]]] = {}

    def get(self, uid: str) -> AnyMemo:
        """Get the memo of the object; a new one is a copy of the operator's memo."""
        try:
            return self._memos[uid]
        except KeyError:
            reviewed = self._reviewed.pop(uid, None)
            memo = self._memos[uid] = self._new() if reviewed is None else reviewed
            return memo

    def peek(self, uid: str) -> AnyMemo:
        """Get the memo of the object if there is one, else a new one that is not kept.

        For objects that may have no handlers: their deletion is not noticed.
        """
        if uid in self._memos:
            return self._memos[uid]
        return self._reviewed[uid] if uid in self._reviewed else self._new()

    def get_for_review(self, uid: str, *, ephemeral: bool) -> AnyMemo:
        """Get the memo of a reviewed object; an ephemeral one is not kept: its object might never exist.

        The deletion of objects that are only in reviews is not noticed: their memos are limited in number.
        """
        if uid in self._memos:
            return self._memos[uid]
        memo = self._reviewed.pop(uid, None)
        if memo is None:
            memo = self._new()
        if not ephemeral:
            self._reviewed[uid] = memo
            if len(self._reviewed) > MAX_REVIEWED:
                del self._reviewed[next(iter(self._reviewed))]
        return memo

    def _new(self) -> AnyMemo:
        # The generic copying is slow, and most memos are of this type.
        return Memo(self._memo) if type(self._memo) is Memo else copy.copy(self._memo)

    def discard(self, uid: str) -> None:
        """Forget the deleted object."""
        self._reviewed.pop(uid, None)
        self._memos.pop(uid, None)
        self._deferred_fns.pop(uid, None)

    def defer_fns(self, uid: str, resource: Resource | None, fns: Iterable[PatchFn]) -> None:
        """Keep the patch functions that could not be applied for the next cycle of this resource.

        Different handlers can handle an object as objects of different resources, such as versions of a kind.
        """
        self._deferred_fns.setdefault(uid, {})[resource] = list(fns)

    def pop_deferred_fns(self, uid: str, resource: Resource | None) -> list[PatchFn]:
        """Take the patch functions that could not be applied in the previous cycle of this resource."""
        by_resource = self._deferred_fns.get(uid)
        if by_resource is None:
            return []
        fns = by_resource.pop(resource, [])
        if not by_resource:
            del self._deferred_fns[uid]
        return fns

    def pop_any_deferred_fns(self, uid: str) -> tuple[Resource | None, list[PatchFn]]:
        """Take the patch functions of any resource, with that resource."""
        resource = next(iter(self._deferred_fns.get(uid, ())), None)
        return resource, self.pop_deferred_fns(uid, resource)
