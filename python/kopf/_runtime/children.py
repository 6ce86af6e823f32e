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

    def _readers_of(self, kind: Kind) -> list[bridge.CacheReader]:
        """The readers of the kind: several, if it is declared with different labels."""
        declared = list(zip(self._owns, self._readers, strict=True))
        found = [reader for owned, reader in declared if owned.kind == kind]
        if not found:
            # The same kind under another name.
            selector = parse_kind(kind)
            found = [reader for owned, reader in declared if owned.selector == selector]
        if not found:
            known = ", ".join(repr(owned.kind) for owned in self._owns) or "empty"
            raise KeyError(f"{kind!r} is not in owns=, which is {known}.")
        return found

    def __getitem__(self, kind: Kind) -> list[Body]:
        readers = self._readers_of(kind)
        found = [one for reader in readers for one in reader.select(None, None, [], self._uid, [])]
        if len(readers) > 1:
            unique = {one.uid: one for one in found}
            found = sorted(unique.values(), key=lambda one: (one.namespace or "", one.name or ""))
        return [Body(one) for one in found]

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
        for reader in self._readers_of(kind):
            found = reader.get_owned(name, place, self._uid)
            if found is not None:
                return Body(found)
        return None

    def all(self) -> list[Body]:
        """All owned objects, kind by kind."""
        return [body for kind in self for body in self[kind]]
