"""The results and errors of applying children."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopf._objects.bodies import Body
from kopf._objects.refs import Ref


class Applied:
    """The result of a call of `kopf.apply`."""

    __module__ = "kopf"

    def __init__(
        self,
        *,
        created: list[Ref] | None = None,
        changed: list[Ref] | None = None,
        unchanged: list[Ref] | None = None,
        yielded: list[Ref] | None = None,
        recreated: list[Ref] | None = None,
        pruned: list[Ref] | None = None,
        objects: Mapping[tuple[str, str], Body] | None = None,
        ready: bool | Callable[[], bool] = False,
    ) -> None:
        super().__init__()
        self.created = created if created is not None else []
        """The objects that did not exist."""
        self.changed = changed if changed is not None else []
        """The objects that have changed."""
        self.unchanged = unchanged if unchanged is not None else []
        """The objects that have not changed."""
        self.yielded = yielded if yielded is not None else []
        """The objects of which other managers keep some fields. They are in one of the other lists, too."""
        self.recreated = recreated if recreated is not None else []
        """The objects that were deleted and created again."""
        self.pruned = pruned if pruned is not None else []
        """The members of the ApplySet that were not desired any more, and were deleted."""
        self.objects: Mapping[tuple[str, str], Body] = objects if objects is not None else {}
        """The applied objects by their kind and name: `objects["Service", "web"]`.

        In namespaces other than the owner's, the name is `"namespace/name"`.
        """
        self._ready = ready

    @property
    def ready(self) -> bool:
        """Whether all children were applied and are ready, by the rules of their kinds."""
        # Most callers do not ask: it is computed at the first access.
        if callable(self._ready):
            self._ready = self._ready()
        return self._ready

    def __repr__(self) -> str:
        lists = ("created", "changed", "unchanged", "yielded", "recreated", "pruned")
        parts = [f"{name}={len(getattr(self, name))}" for name in lists if getattr(self, name)]
        return f"<Applied: {', '.join([*parts, 'ready' if self.ready else 'not ready'])}>"


class ApplyFailed(ExceptionGroup[Exception]):
    """Some children could not be applied. Each of the exceptions names its object."""

    __module__ = "kopf"
    applied: Applied
    """The result for the other children."""

    def __new__(
        cls, message: str, exceptions: Sequence[Exception], applied: Applied | None = None
    ) -> ApplyFailed:
        self = super().__new__(cls, message, exceptions)
        self.applied = applied if applied is not None else Applied()
        return self

    def __init__(self, message: str, exceptions: Sequence[Exception], applied: Applied | None = None) -> None:
        super().__init__(message, exceptions)

    def derive(self, excs: Sequence[Any], /) -> Any:
        """A group of other exceptions with the same result.

        Args:
            excs: The exceptions.
        """
        return ApplyFailed(self.message, excs, self.applied)


class OwnedByAnother(Exception):
    """The object belongs to another owner or to another ApplySet; it was not touched."""

    __module__ = "kopf"
