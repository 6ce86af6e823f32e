"""Calls of storages that users have written, when the engine asks for it.

The engine itself reads and writes the storages of this package.
"""

from __future__ import annotations

import json
from typing import Any

from kopf._intents.settings import OperatorSettings
from kopf._runtime.bridge import FetchState, StoreState
from kopf._runtime.cycle_context import CycleContext

FetchedState = tuple[Any, Any, dict[str, Any]]


def fetch_state(command: FetchState, cycle: CycleContext, settings: OperatorSettings) -> FetchedState:
    """Fetch the last handled essence, the current essence, and the progress of the handlers."""
    diffbase, progress = settings.persistence.diffbase_storage, settings.persistence.progress_storage
    body = cycle.body
    old: Any = diffbase.fetch(body=body)
    if old is not None:
        old = progress.clear(essence=old)
    new: Any = diffbase.build(body=body, extra_fields=command.extra_fields)
    cycle.essence = new = progress.clear(essence=new)
    records: dict[str, Any] = {}
    for id in command.ids:
        try:
            record = progress.fetch(key=id, body=body)
        except json.JSONDecodeError as e:
            cycle.logger.warning(
                f"Ignoring the state kept on the object, as it cannot be read: the record of {id}: {e}"
            )
            continue
        if record is not None:
            records[id] = record
    return old, new, records


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
