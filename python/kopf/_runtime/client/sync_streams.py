"""Watches and logs for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from kopf._objects.changes import ChangeEvent
from kopf._runtime.bridge import UserStream
from kopf._runtime.client import operations, waiting
from kopf._runtime.client.operations import Kind, Selector, Since
from kopf._runtime.client.options import log_records
from kopf._runtime.client.views import ClientView


class SyncStreams(ClientView):
    """The methods of `SyncApi` that iterate over what the server sends."""

    __module__ = "kopf.client"

    def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Selector | None = None,
        fields: Selector | None = None,
        initial: bool = True,
        metadata_only: bool = False,
    ) -> Iterator[ChangeEvent]:
        """Iterate over the changes of objects, from now on; with `initial`, first over those that exist.

        Failures of the connection are recovered: missed changes follow, and none is delivered twice.
        Closing the iterator closes the stream.
        """
        request = operations.watch(kind, namespace, operations.selection(labels, fields), metadata_only)
        stream = self._open(request, initial=initial, timeout=None)
        try:
            while True:
                for change in self._take(stream):
                    if change is not None:
                        yield change
        finally:
            stream.close()

    def logs(
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
    ) -> Iterator[str]:
        """Iterate over the lines of the log of a container; with `follow`, until the container ends.

        `since` is a time, or an age (seconds, `timedelta`); `tail` the number of the last lines. After a
        broken connection, the next line follows: none is missing, and none is repeated.
        """
        request = operations.logs(name, namespace, container, follow, since, tail, previous)
        stream = self._opened(self._client.logs(request, self._view.native, timestamps=timestamps))
        try:
            while not stream.is_finished:
                yield from waiting.to_lines(self._items(stream))
        finally:
            stream.close()

    def _open(self, request: Any, *, initial: bool, timeout: float | None) -> UserStream:
        check_thread()
        return self._opened(self._client.watch(request, self._view.native, initial=initial, timeout=timeout))

    def _take(self, stream: UserStream, wait: waiting.Wait | None = None) -> Iterator[ChangeEvent | None]:
        return waiting.to_changes(self._items(stream), wait)

    def _items(self, stream: UserStream) -> list[Any]:
        """The next items; a failure is the last one."""
        check_thread()
        stream.wait()
        log_records(self._client)
        return stream.take()


def check_thread() -> None:
    """Raise `RuntimeError` in a thread that runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        "SyncApi blocks the thread, and with it the event loop that runs in it. In coroutines, use Api:"
        " the argument `api` of asynchronous handlers, or kopf.connect()."
        " Or call the function in a thread: asyncio.to_thread()."
    )
