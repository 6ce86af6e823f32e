"""Additions of kopf-rs, as used in typed operators."""

from collections.abc import Mapping
from typing import Any

import kopf


@kopf.index("services", metadata_only=True)
def services(name: str, labels: kopf.Labels, **_: Any) -> Mapping[str, str | None]:
    return {name: labels.get("app")}


@kopf.on.event("pods", metadata_only=True)
def watch(name: str | None, **_: Any) -> None: ...


@kopf.daemon("pods", metadata_only=True)
async def follow(stopped: kopf.DaemonStopped, **_: Any) -> None:
    await stopped.wait(5.0)


@kopf.timer("pods", metadata_only=True, interval=5)
async def tick(name: str, **_: Any) -> None: ...


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.networking.request_limit = None
    settings.queueing.max_pending_events = 10
