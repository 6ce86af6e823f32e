"""Calls of an operator's startup, login and cleanup handlers, for commands that serve no resources."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

import click

from kopf._intents.registries import OperatorRegistry
from kopf._intents.settings import OperatorSettings
from kopf._runtime import operator
from kopf._runtime.handler_api import OperatorApi
from kopf._runtime.running import Inspection


def run_inspection(
    inspection: Inspection,
    *,
    registry: OperatorRegistry,
    settings: OperatorSettings,
    namespaces: Collection[str],
) -> None:
    """Call the startup handlers, then the inspection, and then the cleanup handlers; each handler once.

    The startup handlers change the settings. Failed handlers raise `ActivityError`; a signal, before the
    inspection is finished, raises `click.Abort`.
    """
    is_finished = False

    async def inspect(provider: OperatorApi) -> None:
        nonlocal is_finished
        await inspection(provider)
        is_finished = True

    coroutine = operator.run_inspection(
        inspect,
        registry=registry,
        settings=settings,
        namespaces=namespaces,
        clusterwide=not namespaces,
    )
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(coroutine)
    if not is_finished:
        raise click.Abort
