"""Commands `kopf freeze` and `kopf resume`: they write a record to the peering objects, or remove it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from kopf._cli.event_loop import event_loop
from kopf._cli.options import CLIControls
from kopf._cli.output import Output, document_output
from kopf._intents.settings import OperatorSettings
from kopf._runtime import operator
from kopf._runtime.bridge import PeeringWritten
from kopf._runtime.identity import detect_own_id
from kopf._runtime.running import PeeringCommand


def run(
    controls: CLIControls,
    command: PeeringCommand,
    identity: str | None,
    output: Output,
    *,
    settings: OperatorSettings | None,
    peering_name: str,
    **kwargs: Any,
) -> None:
    """Run the command, with the other arguments of an operator; then print the document, if it is asked for.

    Errors of the command are raised, and there is no document.
    """
    settings = settings if settings is not None else OperatorSettings()
    identity = identity or detect_own_id(manual=True)
    written: list[PeeringWritten] = []
    with document_output(output) as print_document:
        with event_loop(controls.loop) as loop:
            coroutine = operator.run_peering_command(
                command,
                identity=identity,
                settings=settings,
                peering_name=peering_name,
                registry=controls.registry,
                stop_flag=controls.stop_flag,
                ready_flag=controls.ready_flag,
                vault=controls.vault,
                **kwargs,
            )
            with contextlib.suppress(asyncio.CancelledError):
                written = loop.run_until_complete(coroutine) if loop is not None else asyncio.run(coroutine)
        is_freeze = command == "freeze"
        print_document(
            {
                "command": command,
                "identity": identity,
                "peering": peering_name,
                "priority": settings.peering.priority if is_freeze else None,
                "lifetime": settings.peering.lifetime if is_freeze else None,
                "objects": [_to_json(item) for item in written],
            }
        )


def _to_json(item: PeeringWritten) -> dict[str, str]:
    return {
        "resource": item.resource.plural,
        "group": item.resource.group,
        "namespace": item.namespace or "",
        "name": item.name,
    }
