"""Posting of Kubernetes events: the queue to the engine, and the log handler.

Nothing waits here: the events of one turn of the event loop are passed to the engine together.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kopf._objects.references import ObjectReference
from kopf._runtime.context import event_queue_loop_var, event_queue_var
from kopf._runtime.loggers import logger as objects_logger

Backoffs = float | Iterable[float]

MAX_ATTEMPTS = 1000
"""Sequences of pauses may be endless; attempts are not."""

_TYPES = (
    (logging.DEBUG, "Debug"),
    (logging.INFO, "Normal"),
    (logging.WARNING, "Warning"),
    (logging.ERROR, "Error"),
)

logger = logging.getLogger("kopf._core.engines.posting")


class K8sEvent(NamedTuple):
    """An event to be posted: the object, the type, the texts, the pauses between the attempts (seconds)."""

    ref: ObjectReference
    type: str
    reason: str
    message: str
    backoffs: Backoffs = ()


def enqueue(ref: ObjectReference, type: str, reason: str, message: str, backoffs: Backoffs) -> None:
    """Hand the event over to the operator; from other threads, by its event loop."""
    loop = event_queue_loop_var.get()
    queue = event_queue_var.get()
    item = K8sEvent(ref=ref, type=type, reason=reason, message=message, backoffs=backoffs)
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        queue.put_nowait(item)
    else:
        loop.call_soon_threadsafe(queue.put_nowait, item)


class EventQueue:
    """The events of one operator; it is used only in its event loop."""

    def __init__(
        self, post: Callable[[list[tuple[dict[str, Any], str, str, str, list[float]]]], None]
    ) -> None:
        super().__init__()
        self._post = post
        self._items: list[K8sEvent] = []
        self._loop = asyncio.get_running_loop()

    def put_nowait(self, item: K8sEvent) -> None:
        """Put an event in; it is posted together with others of this turn of the loop."""
        if not self._items:
            self._loop.call_soon(self.flush)
        self._items.append(item)

    async def put(self, item: K8sEvent) -> None:
        """Put an event in, as `put_nowait` does. It never waits: the queue has no limit."""
        self.put_nowait(item)

    def flush(self) -> None:
        """Hand over all that is there."""
        items, self._items = self._items, []
        events = []
        for item in items:
            try:
                events.append(_serialize_event(item))
            except Exception as e:
                logger.warning(f"Failed to post an event. Ignoring and continuing. {e!r} Event: {item!r}.")
        if events:
            self._post(events)


def _serialize_event(item: K8sEvent) -> tuple[dict[str, Any], str, str, str, list[float]]:
    ref: dict[str, Any] = {key: _sanitize(value) for key, value in item.ref.items() if value is not None}
    backoffs = item.backoffs if isinstance(item.backoffs, Iterable) else [item.backoffs]
    pauses = [float(pause) for pause in itertools.islice(backoffs, MAX_ATTEMPTS)]
    return ref, _sanitize(item.type), _sanitize(item.reason), _sanitize(item.message), pauses


# Texts come from anywhere, such as from exceptions about files; not everything in them can be sent.
def _sanitize(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode("utf-8")


class K8sPoster(logging.Handler):
    """Posts the log records about objects, if it is enabled in the settings of the records.

    It does nothing where no object is being handled: there is no operator to post the event.
    """

    @staticmethod
    def accepts(level: int, settings: Any) -> bool:
        """Whether lines of this level are posted with these settings."""
        posting = settings.posting
        return bool(posting.enabled and posting.loggers and level >= posting.level)

    def filter(self, record: logging.LogRecord) -> bool:
        """Let only those records in that are to be posted."""
        settings = getattr(record, "settings", None)
        posted = (
            settings is not None
            and self.accepts(record.levelno, settings)
            and bool(getattr(record, "k8s_ref", None))
            and not getattr(record, "k8s_skip", False)
            and event_queue_var.get(None) is not None
        )
        return posted and bool(super().filter(record))

    def emit(self, record: logging.LogRecord) -> None:
        """Post the record."""
        try:
            extra: Any = record
            enqueue(
                ref=extra.k8s_ref,
                type=next((name for level, name in _TYPES if record.levelno <= level), "Fatal"),
                reason="Logging",
                message=self.format(record),
                backoffs=extra.settings.posting.logging_backoffs,
            )
        except Exception:
            self.handleError(record)


# Installed at import: without this module, no operator can post events.
objects_logger.addHandler(K8sPoster())
