"""Watches and logs for coroutines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from kopf._objects.changes import ChangeEvent
from kopf._runtime.bridge import UserStream
from kopf._runtime.client import operations, waiting
from kopf._runtime.client.operations import Kind, Selector, Since
from kopf._runtime.client.options import log_records
from kopf._runtime.client.responses import current_responses
from kopf._runtime.client.views import ClientView


class AsyncStreams(ClientView):
    """The methods of `Api` that iterate over what the server sends."""

    __module__ = "kopf.client"

    async def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Selector | None = None,
        fields: Selector | None = None,
        initial: bool = True,
        metadata_only: bool = False,
    ) -> AsyncIterator[ChangeEvent]:
        """Iterate over the changes of objects, from now on; with `initial`, first over those that exist.

        Failures of the connection are recovered: missed changes follow, and none is delivered twice.
        Closing the iterator closes the stream.

        Args:
            initial: Whether to begin with the objects that exist.
        """
        request = operations.watch(kind, namespace, operations.selection(labels, fields), metadata_only)
        stream = self._open(request, initial=initial, timeout=None)
        try:
            while True:
                for change in await self._take(stream):
                    if change is not None:
                        yield change
        finally:
            stream.close()

    async def logs(
        self,
        name: str,
        namespace: str | None = None,
        *,
        container: str | None = None,
        follow: bool = False,
        since: Since = None,
        tail: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
    ) -> AsyncIterator[str]:
        """Iterate over the lines of the log of a container; with `follow`, until the container ends.

        `since` is a time, or an age (seconds, `timedelta`); `tail` the number of the last lines. After a
        broken connection, the next line follows: none is missing, and none is repeated.

        Args:
            container: The container; `None`: the only one.
            follow: Whether to continue until the container ends.
            since: A time, or an age: seconds, or a `timedelta`; `None`: everything.
            tail: The number of the last lines; `None`: all.
            previous: Whether to read the log of the previous run of the container.
            timestamps: Whether each line begins with its time.
        """
        request = operations.logs(name, namespace, container, follow, since, tail, previous)
        stream = self._opened(self._client.logs(request, self._view.native, timestamps=timestamps))
        try:
            while not stream.is_finished:
                for line in waiting.to_lines(await self._items(stream)):
                    yield line
        finally:
            stream.close()

    def _open(self, request: Any, *, initial: bool, timeout: float | None) -> UserStream:
        return self._opened(self._client.watch(request, self._view.native, initial=initial, timeout=timeout))

    async def _take(
        self, stream: UserStream, wait: waiting.Wait | None = None
    ) -> Iterator[ChangeEvent | None]:
        return waiting.to_changes(await self._items(stream), wait)

    async def _items(self, stream: UserStream) -> list[Any]:
        """The next items; a failure is the last one."""
        await current_responses().wait(stream.start_wait)
        log_records(self._client)
        return stream.take()
