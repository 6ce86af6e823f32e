"""The API client for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from kopf._objects.apierrors import Conflict, Invalid, NotFound, TimedOut
from kopf._objects.bodies import Body
from kopf._objects.resources import Resource
from kopf._runtime.bridge import CallFailure
from kopf._runtime.client import operations, waiting
from kopf._runtime.client.editing import Edit
from kopf._runtime.client.failures import to_exception
from kopf._runtime.client.listing import Listing, ListQuery
from kopf._runtime.client.operations import Answer, Kind, Operation, Selector
from kopf._runtime.client.options import log_records
from kopf._runtime.client.sync_streams import SyncStreams, check_thread

T = TypeVar("T")
Resources = list[Resource]
Propagation = Literal["background", "foreground", "orphan"]


class LazyListing(Sequence[Body]):
    """A list that is read page by page when it is iterated over, and as a whole for anything else."""

    def __init__(self, api: SyncApi, query: ListQuery) -> None:
        super().__init__()
        self._api = api
        self._query = query
        self._loaded: Listing | None = None

    def _load(self) -> Listing:
        if self._loaded is None:
            pages, listing = self._query.pages(), Listing()
            while (operation := pages.next_request()) is not None:
                listing.extend(pages.receive(self._page(operation)))
            listing.version = pages.version
            self._loaded = listing
        return self._loaded

    def _page(self, operation: Operation[operations.Page]) -> operations.Page | Exception:
        try:
            return self._api._run(operation)
        except Exception as e:
            return e

    def __iter__(self) -> Iterator[Body]:
        if self._loaded is not None:
            yield from self._loaded
            return
        pages = self._query.pages()
        while (operation := pages.next_request()) is not None:
            yield from pages.receive(self._page(operation))

    def __len__(self) -> int:
        return len(self._load())

    @overload
    def __getitem__(self, index: int) -> Body: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Body]: ...
    def __getitem__(self, index: int | slice) -> Body | Sequence[Body]:
        return self._load()[index]

    @property
    def version(self) -> str:
        """The resource version of the list."""
        return self._load().version


class SyncApi(SyncStreams):
    """The API client for threads: the methods of `Api`, but they block. They raise the same errors."""

    __module__ = "kopf.client"

    def _run(self, operation: Operation[T]) -> T:
        check_thread()
        outcome = self._client.execute(operation.request, self._view.native)
        log_records(self._client)
        if type(outcome) is CallFailure:
            raise to_exception(outcome)
        return operation.convert(outcome)

    # --- Reading.

    def get(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        metadata_only: bool = False,
    ) -> Body:
        """Read an object; `NotFound` if there is none."""
        return self._run(operations.get(kind, name, namespace, subresource, metadata_only))

    def find(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        metadata_only: bool = False,
    ) -> Body | None:
        """Read an object; `None` if there is none."""
        try:
            return self._run(operations.get(kind, name, namespace, subresource, metadata_only))
        except NotFound:
            return None

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Selector | None = None,
        fields: Selector | None = None,
        chunk: int = 500,
        most: int | None = None,
        metadata_only: bool = False,
    ) -> LazyListing:
        """List objects: iterating reads page by page (`chunk` objects each), other uses read them all.

        `namespace="*"` is all namespaces; `most` limits the number of objects.
        """
        query = operations.selection(labels, fields)
        return LazyListing(self, ListQuery(kind, namespace, query, chunk, most, metadata_only))

    def scale(self, kind: Kind, name: str, replicas: int | None = None, namespace: str | None = None) -> int:
        """Set the desired number of replicas, or read it; return it."""
        return self._run(operations.scale(kind, name, replicas, namespace))

    def discover(self, kind: Kind) -> Resource:
        """The resource of a kind, as the server describes it."""
        return self._run(operations.discover(kind))

    def resources(self) -> Resources:
        """All resources that the server serves, of all versions."""
        return self._run(operations.resources())

    def server_version(self) -> dict[str, Any]:
        """The version of the server."""
        return self._run(operations.server_version())

    def allowed(
        self,
        verb: str,
        kind: Kind,
        name: str | None = None,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> bool:
        """Whether the user of this client has the permission; `namespace="*"` is all namespaces."""
        return self._run(operations.allowed(verb, kind, name, namespace, subresource))

    # --- Writing.

    def create(self, body: Any, namespace: str | None = None) -> Body:
        """Create an object; `AlreadyExists` if its name is in use."""
        return self._run(operations.create(body, namespace))

    def replace(self, body: Any, namespace: str | None = None, *, subresource: str | None = None) -> Body:
        """Replace an object; `Conflict` if the body has a `resourceVersion` and the object is newer."""
        return self._run(operations.replace(body, namespace, subresource))

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        version: str | None = None,
        strategic: bool = False,
    ) -> Body:
        """Patch an object: merge a mapping into it, or execute the operations of a list (RFC 6902).

        With `version`, only if this is still the resource version of the object.
        """
        operation = operations.patch(kind, name, patch, namespace, subresource, version, strategic)
        return self._run(operation)

    def apply(
        self,
        body: Any,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        force: bool = False,
        manager: str | None = None,
    ) -> Body:
        """Apply an object, server-side: create it, or set its fields and remove those applied earlier.

        `ApplyConflict` if others own some of the fields, with other values; `force` takes them over.
        """
        api = self if manager is None else self.using(manager=manager)
        return api._run(operations.apply(body, namespace, subresource, force))

    def edit(
        self,
        kind: Kind,
        name: str,
        fn: Callable[[dict[str, Any]], Mapping[str, Any] | None],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        attempts: int = 10,
    ) -> Body:
        """Read an object, let the function change it in place or return a new one, and send the difference.

        If the object has changed meanwhile, this is repeated. Nothing is sent if nothing differs. A lost
        response may lead to `Conflict` with `uncertain=True`.
        """
        edit = Edit(kind, name, namespace, subresource, attempts)
        while True:
            document = edit.read(self._run(edit.get()))
            changed = fn(document)
            operation = edit.patch(document if changed is None else changed)
            if operation is None:
                return edit.body
            try:
                return self._run(operation)
            except Conflict as error:
                if error.uncertain or not edit.may_repeat():  # it may conflict with this change
                    raise
            except Invalid:
                # Servers report the failed test of a JSON patch like this.
                if not edit.is_outdated(self._run(edit.get())) or not edit.may_repeat():
                    raise

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation | None = None,
        grace: float | None = None,
        uid: str | None = None,
        version: str | None = None,
        missing_ok: bool = False,
    ) -> Body | None:
        """Delete an object; return it if it still exists because of finalizers or a grace period.

        With `uid` or `version`, `Conflict` if it is another object or another version.
        """
        try:
            return self._run(operations.delete(kind, name, namespace, propagation, grace, uid, version))
        except NotFound:
            if missing_ok:
                return None
            raise

    def delete_all(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Selector | None = None,
        fields: Selector | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        """Delete all selected objects of the namespace; `namespace="*"` is all namespaces."""
        query = operations.selection(labels, fields)
        targets: list[str | None] = [namespace]
        if namespace == "*":
            selected = self.list(kind, "*", labels=labels, fields=fields, metadata_only=True)
            targets = sorted({body.metadata.namespace for body in selected}, key=str)
        for target in targets:
            self._run(operations.delete_all(kind, target, query, propagation))

    def evict(
        self, name: str, namespace: str | None = None, *, uid: str | None = None, grace: float | None = None
    ) -> None:
        """Evict a pod; `TooManyRequests` if a disruption budget forbids it now."""
        self._run(operations.evict(name, namespace, uid, grace, self._view.dry_run))

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str | None = None,
        accept: str | None = None,
    ) -> Answer:
        """Send any request. A body that is not bytes is sent as JSON."""
        return self._run(operations.raw(method, path, body, params, content_type, accept))

    # --- Watching and waiting.

    def wait_for(
        self,
        kind: Kind,
        name: str,
        condition: waiting.Condition,
        namespace: str | None = None,
        *,
        timeout: float | None,
        uid: str | None = None,
    ) -> Body | None:
        """Wait until the condition holds for the object, or for `None` if there is none; return its state.

        With `uid`, another object of this name counts as none. `TimeoutError` after the timeout (seconds).
        """
        wait = waiting.Wait(kind, name, condition, timeout, uid)
        try:
            current = self.using(timeout=timeout or None).find(kind, name, namespace)
        except TimedOut:
            raise wait.timeout_error() from None
        if wait.update(current):
            return wait.body
        stream = self._open(operations.watch(kind, namespace, name=name), initial=True, timeout=wait.rest)
        try:
            while True:
                for change in self._take(stream, wait):
                    if wait.receive(change):
                        return wait.body
        finally:
            stream.close()
