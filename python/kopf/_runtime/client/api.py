"""The API client for coroutines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from kopf._objects.apierrors import Conflict, Invalid, NotFound, TimedOut
from kopf._objects.bodies import Body
from kopf._objects.resources import Resource
from kopf._runtime.bridge import CallFailure
from kopf._runtime.client import operations, waiting
from kopf._runtime.client.async_streams import AsyncStreams
from kopf._runtime.client.editing import Edit
from kopf._runtime.client.failures import to_exception
from kopf._runtime.client.listing import Listing, ListQuery
from kopf._runtime.client.operations import Answer, Kind, Operation, Selector
from kopf._runtime.client.options import log_records
from kopf._runtime.client.responses import current_responses

T = TypeVar("T")
Resources = list[Resource]
Propagation = Literal["background", "foreground", "orphan"]


class AsyncListing:
    """A list that is not read yet: await it for all objects, or iterate over it page by page."""

    def __init__(self, api: Api, query: ListQuery) -> None:
        super().__init__()
        self._api = api
        self._query = query

    def __await__(self) -> Generator[Any, None, Listing]:
        return self._all().__await__()

    async def _all(self) -> Listing:
        listing = Listing()
        pages = self._query.pages()
        while (operation := pages.next_request()) is not None:
            listing.extend(pages.receive(await self._page(operation)))
        listing.version = pages.version
        return listing

    async def __aiter__(self) -> AsyncIterator[Body]:
        pages = self._query.pages()
        while (operation := pages.next_request()) is not None:
            for body in pages.receive(await self._page(operation)):
                yield body

    async def _page(self, operation: Operation[operations.Page]) -> operations.Page | Exception:
        try:
            return await self._api._run(operation)
        except Exception as e:
            return e


class Api(AsyncStreams):
    """The API client for coroutines. Its methods raise `kopf.ApiError` and its subclasses.

    Common parameters:
        kind: A name as in decorators, a name such as `apps/v1/deployments`, a `kopf.Resource`, or an object.
        name: The name of the object.
        namespace: The namespace; by default, that of the body, else that of the client. `*`: all namespaces.
        subresource: A subresource, such as `status`; `None`: the object itself.
        metadata_only: Whether to read only the metadata.
        labels: A label selector: a text, or a mapping of labels to values.
        fields: A field selector: a text, or a mapping of fields to values.
        uid: The uid of the object; if another object has this name, it is not touched.
        version: The resource version that the object must have.
        propagation: The deletion of dependents: `foreground`, `background`, or none: `orphan`.
        grace: The grace period in seconds; `None`: by the object.
        manager: The field manager; `None`: that of the client.
        body: The object: a mapping, or a model of a client library.
    """

    __module__ = "kopf.client"

    async def _run(self, operation: Operation[T]) -> T:
        client, view = self._client, self._view
        outcome = await current_responses().wait(
            lambda queue, ticket: client.start(operation.request, view.native, queue, ticket)
        )
        log_records(client)
        if type(outcome) is CallFailure:
            raise to_exception(outcome)
        return operation.convert(outcome)

    # --- Reading.

    async def get(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        metadata_only: bool = False,
    ) -> Body:
        """Read an object; `NotFound` if there is none."""
        return await self._run(operations.get(kind, name, namespace, subresource, metadata_only))

    async def find(
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
            return await self._run(operations.get(kind, name, namespace, subresource, metadata_only))
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
    ) -> AsyncListing:
        """List objects: `async for` reads page by page (`chunk` objects each), `await` reads them all.

        Args:
            chunk: The number of objects per request.
            most: The limit of the number of objects; `None`: no limit.
        """
        query = operations.selection(labels, fields)
        return AsyncListing(self, ListQuery(kind, namespace, query, chunk, most, metadata_only))

    async def scale(
        self, kind: Kind, name: str, replicas: int | None = None, namespace: str | None = None
    ) -> int:
        """Set the desired number of replicas, or read it; return it.

        Args:
            replicas: The desired number of replicas; `None`: read it.
        """
        return await self._run(operations.scale(kind, name, replicas, namespace))

    async def discover(self, kind: Kind) -> Resource:
        """The resource of a kind, as the server describes it."""
        return await self._run(operations.discover(kind))

    async def resources(self) -> Resources:
        """All resources that the server serves, of all versions."""
        return await self._run(operations.resources())

    async def server_version(self) -> dict[str, Any]:
        """The version of the server."""
        return await self._run(operations.server_version())

    async def allowed(
        self,
        verb: str,
        kind: Kind,
        name: str | None = None,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> bool:
        """Whether the user of this client has the permission; `namespace="*"` is all namespaces.

        Args:
            verb: The verb, such as `list`.
        """
        return await self._run(operations.allowed(verb, kind, name, namespace, subresource))

    # --- Writing.

    async def create(self, body: Any, namespace: str | None = None) -> Body:
        """Create an object; `AlreadyExists` if its name is in use."""
        return await self._run(operations.create(body, namespace))

    async def replace(
        self, body: Any, namespace: str | None = None, *, subresource: str | None = None
    ) -> Body:
        """Replace an object; `Conflict` if the body has a `resourceVersion` and the object is newer."""
        return await self._run(operations.replace(body, namespace, subresource))

    async def patch(
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

        Args:
            patch: A mapping to be merged, in which None removes; or a list of operations.
            strategic: Whether a mapping is a strategic merge patch.
        """
        operation = operations.patch(kind, name, patch, namespace, subresource, version, strategic)
        return await self._run(operation)

    async def apply(
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

        Args:
            force: Whether to take over fields of other managers.
        """
        api = self if manager is None else self.using(manager=manager)
        return await api._run(operations.apply(body, namespace, subresource, force))

    async def edit(
        self,
        kind: Kind,
        name: str,
        fn: Callable[[dict[str, Any]], Awaitable[Mapping[str, Any] | None] | Mapping[str, Any] | None],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        attempts: int = 10,
    ) -> Body:
        """Read an object, let the function change it in place or return a new one, and send the difference.

        If the object has changed meanwhile, this is repeated. Nothing is sent if nothing differs. A lost
        response may lead to `Conflict` with `uncertain=True`.

        Args:
            fn: The function of the object; it changes the object in place, or returns a new one.
            attempts: The number of attempts if the object changes meanwhile; then `Conflict`.
        """
        edit = Edit(kind, name, namespace, subresource, attempts)
        while True:
            document = edit.read(await self._run(edit.get()))
            changed = fn(document)
            if isinstance(changed, Awaitable):
                changed = await changed
            operation = edit.patch(document if changed is None else changed)
            if operation is None:
                return edit.body
            try:
                return await self._run(operation)
            except Conflict as error:
                if error.uncertain or not edit.may_repeat():  # it may conflict with this change
                    raise
            except Invalid:
                # Servers report the failed test of a JSON patch like this.
                if not edit.is_outdated(await self._run(edit.get())) or not edit.may_repeat():
                    raise

    async def delete(
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

        Args:
            missing_ok: Whether it is no error if there is no such object.
        """
        try:
            return await self._run(operations.delete(kind, name, namespace, propagation, grace, uid, version))
        except NotFound:
            if missing_ok:
                return None
            raise

    async def delete_all(
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
            selected = await self.list(kind, "*", labels=labels, fields=fields, metadata_only=True)
            targets = sorted({body.metadata.namespace for body in selected}, key=str)
        for target in targets:
            await self._run(operations.delete_all(kind, target, query, propagation))

    async def evict(
        self, name: str, namespace: str | None = None, *, uid: str | None = None, grace: float | None = None
    ) -> None:
        """Evict a pod; `TooManyRequests` if a disruption budget forbids it now."""
        await self._run(operations.evict(name, namespace, uid, grace, self._view.dry_run))

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str | None = None,
        accept: str | None = None,
    ) -> Answer:
        """Send any request. A body that is not bytes is sent as JSON.

        Args:
            method: The HTTP method.
            path: The path in the server. It may end with a slash, except with `DELETE`.
            body: The body: bytes, or anything that can be JSON.
            params: The parameters of the query.
            content_type: The type of the body; `None`: JSON.
            accept: The accepted types of the response; `None`: JSON.
        """
        return await self._run(operations.raw(method, path, body, params, content_type, accept))

    # --- Watching and waiting.

    async def wait_for(
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

        Args:
            condition: A function of the body, or of None if there is none; `kopf.client` has usual ones.
            timeout: The timeout in seconds; `None`: no timeout.
        """
        wait = waiting.Wait(kind, name, condition, timeout, uid)
        try:
            current = await self.using(timeout=timeout or None).find(kind, name, namespace)
        except TimedOut:
            raise wait.timeout_error() from None
        if wait.update(current):
            return wait.body
        stream = self._open(operations.watch(kind, namespace, name=name), initial=True, timeout=wait.rest)
        try:
            while True:
                for change in await self._take(stream, wait):
                    if wait.receive(change):
                        return wait.body
        finally:
            stream.close()
