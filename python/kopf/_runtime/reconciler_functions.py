"""Functions of reconcilers' declarations: filters, `changed`, and `map`.

The module is imported only by operators with reconcilers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._intents import matching
from kopf._intents.handlers import ReconcilingHandler, ResourceHandler, handler_with
from kopf._intents.reconciling import Owned, Watched
from kopf._intents.selectors import EVERYTHING
from kopf._objects.bodies import Body
from kopf._objects.refs import Ref
from kopf._objects.typedefs import HandlerId
from kopf._runtime.bridge import InspectObject
from kopf._runtime.cycle_context import InspectedObject
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.errors import ENDING_ERRORS, message_of
from kopf._runtime.loggers import FrameworkMessage, ObjectLogger
from kopf._runtime.repeated_failures import RepeatedFailures

HASH_MASK = (1 << 64) - 1


class ObjectInspector:
    """Calls the functions of the declarations for single objects."""

    def __init__(self, environment: HandlerEnvironment) -> None:
        super().__init__()
        self._environment = environment
        self._failures = RepeatedFailures()

    def inspect(self, host_task: InspectObject) -> None:
        """Call the functions of a declaration: filters, `changed`, `map`."""
        handler = self._environment.handlers[host_task.handler]
        assert isinstance(handler, ReconcilingHandler)
        with contextlib.closing(InspectedObject.of(host_task, self._environment)) as inspected:
            cause = inspected.spawning_cause()
            related = None
            if host_task.related is not None:
                related = (*handler.owns, *handler.watches)[host_task.related]
            declared = handler if related is None else filters_of(related)
            try:
                matches = matching.match(declared, cause)
            except ENDING_ERRORS:
                raise
            except BaseException as e:
                self._report(host_task, f"A filter of {handler} has failed: {message_of(e)}", e)
                return host_task.complete(None, [])
            changed = handler.changed if related is None else related.changed
            functions, error = hash_values(changed, cause.kwargs)
            if error is None:
                self._failures.discard(_failure_key(host_task))
            else:
                self._report(
                    host_task, f"A function in changed= of {handler} has failed: {message_of(error)}", error
                )
            if not isinstance(related, Watched) or related.map is None or not matches:
                return host_task.complete(matches, functions)
            try:
                mapped = related.map(**cause.kwargs)
                if mapped is EVERYTHING:
                    return host_task.complete(matches, functions, everything=True)
                host_task.complete(matches, functions, list(primaries_of(mapped, host_task.object.namespace)))
            except ENDING_ERRORS:
                raise
            except BaseException as e:
                inspected.logger.exception(f"The map of {handler} has failed: {message_of(e)}")
                host_task.complete(matches, functions)

    def _report(self, host_task: InspectObject, text: str, error: BaseException) -> None:
        """Log an error of a declaration's function, once per object."""
        if self._failures.add(_failure_key(host_task)):
            logger = ObjectLogger(body=Body(host_task.object), settings=self._environment.settings)
            logger.error(FrameworkMessage(text), exc_info=error)


def _failure_key(host_task: InspectObject) -> tuple[int, int | None, str | None]:
    return (host_task.handler, host_task.related, host_task.object.uid)


def hash_values(
    parts: Iterable[Any], kwargs: Mapping[str, Any]
) -> tuple[list[int | None], BaseException | None]:
    """Call the functions among the parts of `changed`: the hashes of their values, and the last error.

    The hash of a failed function is None.
    """
    hashes: list[int | None] = []
    error: BaseException | None = None
    for part in parts:
        if callable(part):
            try:
                hashes.append(_hash_of(part(**kwargs)) & HASH_MASK)
            except ENDING_ERRORS:
                raise
            except BaseException as e:
                error = e
                hashes.append(None)
    return hashes, error


def _hash_of(value: Any) -> int:
    # In Python, the hashes of -1 and -2 are equal, as are those of 0 and of the empty string.
    if isinstance(value, tuple):
        return hash(tuple(_hash_of(item) for item in value))
    return hash((type(value), repr(value)) if isinstance(value, int | float) else value)


def filters_of(related: Owned | Watched) -> ResourceHandler:
    """The filters of a secondary kind as those of a handler, for their evaluation."""
    own: dict[str, Any] = {}
    if isinstance(related, Watched):
        own = {"annotations": related.annotations, "when": related.when}
    return handler_with(ResourceHandler, id=HandlerId(""), labels=related.labels, **own)


def primaries_of(mapped: Any, namespace: str | None) -> Iterable[tuple[str | None, str, str | None]]:
    """The namespaces, names and uids of what a mapping function has returned."""
    if mapped is None:
        return
    if isinstance(mapped, str):
        head, _, name = mapped.rpartition("/")
        yield (head or namespace, name, None)
    elif isinstance(mapped, Ref):
        yield (mapped.namespace, mapped.name, mapped.uid)
    elif isinstance(mapped, Mapping):
        metadata = mapped.get("metadata") or {}
        yield (metadata.get("namespace"), metadata["name"], metadata.get("uid"))
    elif (
        isinstance(mapped, tuple) and len(mapped) == 2 and isinstance(mapped[1], str) and _is_name(mapped[0])
    ):
        yield (mapped[0], mapped[1], None)
    else:
        for item in mapped:
            yield from primaries_of(item, namespace)


def _is_name(value: Any) -> bool:
    return value is None or isinstance(value, str)
