"""Calls of storages that users have written, when the engine asks for it.

The engine itself reads and writes the storages of this package.
"""

from __future__ import annotations

import json
from typing import Any

from kopf._intents.settings import OperatorSettings
from kopf._runtime.bridge import FetchState, StoreState
from kopf._runtime.handling import Handling

FetchedState = tuple[Any, Any, dict[str, Any]]


def fetch_state(step: FetchState, handling: Handling, settings: OperatorSettings) -> FetchedState:
    """Fetch the last handled essence, the current essence, and the progress of the handlers."""
    diffbase, progress = settings.persistence.diffbase_storage, settings.persistence.progress_storage
    body = handling.body
    old: Any = diffbase.fetch(body=body)
    if old is not None:
        old = progress.clear(essence=old)
    new: Any = diffbase.build(body=body, extra_fields=step.extra_fields)
    handling.essence = new = progress.clear(essence=new)
    records: dict[str, Any] = {}
    for id in step.ids:
        try:
            record = progress.fetch(key=id, body=body)
        except json.JSONDecodeError as e:
            handling.logger.warning(
                f"Ignoring the state kept on the object, as it cannot be read: the record of {id}: {e}"
            )
            continue
        if record is not None:
            records[id] = record
    return old, new, records


def store_state(step: StoreState, handling: Handling, settings: OperatorSettings) -> None:
    """Store the progress and the essence in the patch, or wherever the storages keep them."""
    diffbase, progress = settings.persistence.diffbase_storage, settings.persistence.progress_storage
    body, patch = handling.body, handling.patch
    for id, record in step.records:
        if record is None:
            progress.purge(key=id, body=body, patch=patch)
        else:
            progress.store(key=id, record=record, body=body, patch=patch)
    if step.records:
        progress.flush()
    if step.essence:
        diffbase.store(body=body, patch=patch, essence=handling.essence)
    # Earlier operators woke themselves up with a dummy; it goes with the next write.
    if patch or step.written:
        progress.touch(body=body, patch=patch, value=None)
