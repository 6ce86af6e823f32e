"""The argument `children` of reconcilers: the owned objects of a primary, read without requests.

The module is imported only by operators with reconcilers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kopf._intents.reconciling import Owned, parse_kind
from kopf._objects.bodies import Body
from kopf._objects.refs import Kind
from kopf._runtime import bridge


class Children(Mapping[Kind, list[Body]]):
    """The owned objects of a primary in their newest states, by the kinds in `owns=`, as they are declared.

    Reading sends no request. Each body is a separate view, which does not change later.
    """

    __module__ = "kopf"

    def __init__(
        self, owns: Sequence[Owned], readers: Sequence[bridge.CacheReader], uid: str, namespace: str | None
    ) -> None:
        super().__init__()
        self._owns = owns
        self._readers = readers
        self._uid = uid
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(map(str, self))}>"

    def _reader(self, kind: Kind) -> bridge.CacheReader:
        for owned, reader in zip(self._owns, self._readers, strict=True):
            if owned.kind == kind:
                return reader
        # The same kind under another name.
        selector = parse_kind(kind)
        for owned, reader in zip(self._owns, self._readers, strict=True):
            if owned.selector == selector:
                return reader
        known = ", ".join(repr(owned.kind) for owned in self._owns) or "empty"
        raise KeyError(f"{kind!r} is not in owns=, which is {known}.")

    def __getitem__(self, kind: Kind) -> list[Body]:
        return [Body(one) for one in self._reader(kind).select(None, None, [], self._uid, [])]

    def __iter__(self) -> Iterator[Kind]:
        return iter(dict.fromkeys(owned.kind for owned in self._owns))

    def __len__(self) -> int:
        return len({owned.kind for owned in self._owns})

    def of(self, kind: Kind) -> list[Body]:
        """The owned objects of the kind, by namespaces and names; `KeyError` if it is not in `owns=`.

        Args:
            kind: The kind, as it is declared in `owns=`.
        """
        return self[kind]

    def get(  # type: ignore[override]
        self, kind: Kind, name: str, namespace: str | None = None
    ) -> Body | None:
        """The owned object of this kind and name, by default in the namespace of the primary; or None.

        Args:
            kind: The kind, as it is declared in `owns=`.
            name: The name of the object.
            namespace: The namespace; by default, that of the primary.
        """
        place = namespace if namespace is not None else self._namespace
        found = self._reader(kind).get_owned(name, place, self._uid)
        return None if found is None else Body(found)

    def all(self) -> list[Body]:
        """All owned objects, kind by kind."""
        return [body for kind in self for body in self[kind]]
