"""Calls of storages that users have written, when the engine asks for it.

The engine itself reads and writes the storages of this package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._objects.dicts import FieldSpec
from kopf._objects.logging_types import Logger
from kopf._objects.typedefs import HandlerId
from kopf._runtime.bridge import FetchState, StoreState
from kopf._runtime.cycle_context import CycleContext

FetchedState = tuple[Any, Any, dict[str, Any]]


def fetch_state(command: FetchState, cycle: CycleContext, settings: OperatorSettings) -> FetchedState:
    """Fetch the last handled essence, the current essence, and the progress of the handlers."""
    old, new = fetch_essences(cycle.body, command.extra_fields, settings)
    cycle.essence = new
    return old, new, fetch_records(command.ids, cycle.body, settings, cycle.logger)


def fetch_essences(
    body: Body, extra_fields: Iterable[FieldSpec], settings: OperatorSettings
) -> tuple[Any, Any]:
    """Fetch the last handled essence, and build the current one."""
    diffbase, progress = settings.persistence.diffbase_storage, settings.persistence.progress_storage
    old: Any = diffbase.fetch(body=body)
    if old is not None:
        old = progress.clear(essence=old)
    return old, progress.clear(essence=diffbase.build(body=body, extra_fields=extra_fields))


def fetch_records(
    ids: Iterable[HandlerId], body: Body, settings: OperatorSettings, logger: Logger
) -> dict[str, Any]:
    """Fetch the progress of the handlers, without records that are not JSON."""
    records: dict[str, Any] = {}
    for id in ids:
        try:
            record = settings.persistence.progress_storage.fetch(key=id, body=body)
        except json.JSONDecodeError as e:
            warn_of_record(logger, id, e)
            continue
        if record is not None:
            records[id] = record
    return records


def warn_of_record(logger: Logger, id: str, problem: object) -> None:
    """Warn of a record that is ignored."""
    logger.warning(
        f"Ignoring the state kept on the object, as it cannot be read: the record of {id}: {problem}"
    )


def store_state(command: StoreState, cycle: CycleContext, settings: OperatorSettings) -> None:
    """Store the progress and the essence in the patch, or wherever the storages keep them."""
    diffbase, progress = settings.persistence.diffbase_storage, settings.persistence.progress_storage
    body, patch = cycle.body, cycle.patch
    for id, record in command.records:
        if record is None:
            progress.purge(key=id, body=body, patch=patch)
        else:
            progress.store(key=id, record=record, body=body, patch=patch)
    if command.records:
        progress.flush()
    if command.essence:
        diffbase.store(body=body, patch=patch, essence=cycle.essence)
    # Earlier operators woke themselves up with a dummy; it goes with the next write.
    if patch or command.written:
        progress.touch(body=body, patch=patch, value=None)
