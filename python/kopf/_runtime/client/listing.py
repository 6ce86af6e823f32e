"""Lists, page by page."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import NamedTuple

from kopf._objects.apierrors import Gone
from kopf._objects.bodies import Body
from kopf._runtime.client import operations
from kopf._runtime.client.operations import Kind, Operation, Page


class Listing(builtins.list[Body]):
    """The objects of a list."""

    __module__ = "kopf.client"

    version: str = ""
    """The resource version of the list."""


class ListQuery(NamedTuple):
    """The arguments of a list."""

    kind: Kind
    namespace: str | None
    query: builtins.list[tuple[str, str]]
    chunk: int
    most: int | None
    metadata_only: bool

    def pages(self) -> Pages:
        """Start to read it."""
        if self.chunk < 1 or (self.most is not None and self.most < 0):
            raise ValueError("chunk must be positive, and most must not be negative.")
        return Pages(self)


class Pages:
    """The pages of one list.

    If a continuation has expired, the list starts again: each object is delivered once.
    """

    def __init__(self, query: ListQuery) -> None:
        super().__init__()
        self._query = query
        self._left = query.most
        self._token = ""
        self._finished = query.most == 0
        self._seen: set[str] = set()
        self.version = ""

    def next_request(self) -> Operation[Page] | None:
        """The request of the next page; `None` at the end."""
        if self._finished:
            return None
        query = [*self._query.query, ("limit", str(self._query.chunk))]
        if self._token:
            query.append(("continue", self._token))
        return operations.list_page(self._query.kind, self._query.namespace, query, self._query.metadata_only)

    def receive(self, page: Page | Exception) -> Sequence[Body]:
        """The new objects of a page; raises the error of its request, unless the list can start again."""
        if isinstance(page, Gone) and self._token:
            self._token = ""
            return ()
        if isinstance(page, Exception):
            raise page
        self.version, self._token = page.version, page.token
        bodies = []
        for body in page.items:
            # A view would refer back to the body, so that only the garbage collector could free both.
            uid = (body.get("metadata") or {}).get("uid") or ""
            if not uid or uid not in self._seen:
                self._seen.add(uid)
                bodies.append(body)
        if self._left is not None:
            bodies = bodies[: self._left]
            self._left -= len(bodies)
        self._finished = not self._token or self._left == 0
        return bodies
