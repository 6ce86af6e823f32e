"""The status server of an operator, and the heartbeats of its event loop.

Operators without a status server do not load this module.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

from kopf._intents import compatibility
from kopf._intents.handlers import DaemonHandler
from kopf._intents.registries import OperatorRegistry, activity_handlers
from kopf._intents.serialization import has_status_address
from kopf._intents.settings import OperatorSettings
from kopf._objects.reasons import Activity
from kopf._runtime.bridge import Engine, StatusServer
from kopf._runtime.errors import OperationalError, sendable
from kopf._runtime.invocation import Invoker

INTERVAL = 1.0
"""Seconds between two heartbeats."""


def start_status_server(
    liveness_endpoint: str | None, status_address: str | None, settings: OperatorSettings
) -> StatusServer:
    """Start to listen; raises `OperationalError` if an address is wrong."""
    is_requested = status_address or has_status_address(settings)
    if is_requested and compatibility.of_settings(settings).has_no_health_checks:
        raise OperationalError(
            f"Kopf {compatibility.VERSION} has no status address: unset it, or {compatibility.VARIABLE}."
        )
    address = status_address or (settings.health.address if has_status_address(settings) else None)
    return StatusServer(
        liveness=_parse_endpoint(liveness_endpoint) if liveness_endpoint else None,
        address=_parse_address(address) if address else None,
    )


def move_status(server: StatusServer, settings: OperatorSettings) -> None:
    """Serve the status endpoints at the address that a startup handler has set, if it has set one."""
    if has_status_address(settings) and settings.health.address:
        server.serve_status_at(*_parse_address(settings.health.address))


def has_probes(registry: OperatorRegistry) -> bool:
    """Whether there are handlers of probes."""
    handlers = activity_handlers(registry).get_all_handlers()
    return any(handler.activity in (None, Activity.PROBE) for handler in handlers)


class Heartbeat:
    """Sends heartbeats of the event loop to the engine during the `with` block."""

    def __init__(self, engine: Engine, invoker: Invoker, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._engine = engine
        self._invoker = invoker
        self._loop = loop
        self._next: asyncio.TimerHandle | None = None

    def __enter__(self) -> Heartbeat:
        self._beat()
        return self

    def __exit__(
        self, type_: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._next is not None:
            self._next.cancel()

    def _beat(self) -> None:
        self._engine.heartbeat(self._calls(), self._invoker.pool.load())
        self._next = self._loop.call_later(INTERVAL, self._beat)

    def _calls(self) -> list[tuple[str, float]]:
        now, running = time.monotonic(), list(self._invoker.running.values())
        return [
            (sendable(str(handler.id)), now - start)
            for handler, _, start in running
            if not isinstance(handler, DaemonHandler)
        ]


def _parse_endpoint(endpoint: str) -> tuple[str, int, str]:
    """The host, the port, and the path of the health endpoint."""
    import urllib.parse

    parts = urllib.parse.urlsplit(endpoint)
    if parts.scheme != "http":
        raise OperationalError(f"Unsupported scheme: {endpoint}")
    return parts.hostname or "localhost", parts.port or 80, parts.path or "/"


def _parse_address(address: str) -> tuple[str, int]:
    """The host and the port of the status endpoints."""
    import urllib.parse

    try:
        parts = urllib.parse.urlsplit(f"//{address}")
        if parts.hostname and parts.port is not None and parts.netloc == address and "@" not in address:
            return parts.hostname, parts.port
    except ValueError:  # the port
        pass
    raise OperationalError(f"{address!r} is not an address such as 0.0.0.0:8080")
