"""The way between the engine and the event loop. It owns the batches of work and of replies; it must not know
what the work is about. Only this module imports the native one: others take its names from here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from kopf._kopf import (
    ApiServer,
    Attempt,
    Batch,
    Call,
    Cancel,
    Change,
    Close,
    Delay,
    Dismiss,
    Engine,
    Finished,
    Forget,
    Handle,
    Index,
    IndexCall,
    Keep,
    Locate,
    Log,
    Login,
    Match,
    Object,
    Pick,
    Probe,
    Recall,
    Refresh,
    Review,
    Run,
    Script,
    Select,
    Settled,
    Signal,
    Spawn,
    Transform,
    VirtualTime,
    Watch,
    WebhookServer,
    __version__,
    build_certificate,
    describe_certificate,
    plain,
)

__all__ = [
    "Answered",
    "ApiServer",
    "Attempt",
    "Batch",
    "Bridge",
    "Call",
    "Cancel",
    "Change",
    "Close",
    "Delay",
    "Dismiss",
    "Engine",
    "Finished",
    "Forget",
    "Handle",
    "Index",
    "IndexCall",
    "Keep",
    "Locate",
    "Log",
    "Login",
    "Match",
    "Object",
    "Pick",
    "Probe",
    "Raised",
    "Recall",
    "Refresh",
    "Review",
    "Run",
    "Script",
    "Select",
    "Settled",
    "Signal",
    "Spawn",
    "Transform",
    "VirtualTime",
    "Watch",
    "WebhookServer",
    "__version__",
    "build_certificate",
    "describe_certificate",
    "plain",
]

Answered = Script | Run | Signal
"""What is answered in batches."""

logger = logging.getLogger("kopf._core.reactor.running")

# The loggers that the engine writes to, or their common parents: the most verbose of them sets the threshold.
LOGGERS = [
    logging.getLogger(name)
    for name in ("kopf.objects", "kopf._core.reactor", "kopf._core.engines", "kopf._cogs.clients")
]


class Raised:
    """What a handler raised, as the engine's rules name it."""

    NOTHING = 0
    TEMPORARY = 1
    PERMANENT = 2
    CHILDREN = 3
    ARBITRARY = 4


class Bridge:
    """Takes the work of one engine, and sends the replies back: both in batches, in one loop."""

    def __init__(
        self,
        engine: Engine,
        receivers: Mapping[type[Any], Callable[[Any], None]],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__()
        self._engine = engine
        self._receivers = receivers
        self._loop = loop if loop is not None else asyncio.get_running_loop()
        self._answered: list[Answered] = []
        self.refresh: Callable[[], None] = lambda: None
        """What is to be told to the engine before it goes on with the replies."""
        self._receiving = False
        self._fileno: int | None = None
        self._level: int | None = None

    def open(self) -> None:
        """Begin to receive."""
        self._fileno = self._engine.fileno()
        self._loop.add_reader(self._fileno, self.receive)

    def close(self) -> None:
        """Stop receiving; the replies that are ready are sent."""
        if self._fileno is not None:
            self._loop.remove_reader(self._fileno)
            self._fileno = None
        self._send()

    def drain(self) -> None:
        """Receive all that is there now, in as many batches as it takes."""
        while self.receive():
            pass

    def receive(self) -> bool:
        """Receive one batch of what is there now; whether there was anything."""
        self._pass_level()
        self._receiving = True
        items, receivers = self._engine.poll(), self._receivers
        try:
            for item in items:
                try:
                    receivers[type(item)](item)
                except Exception as e:
                    logger.exception(f"The engine's request cannot be served: {e}")
        finally:
            self._receiving = False
            self._send()
        return bool(items)

    def answered(self, item: Answered) -> None:
        """Send the prepared reply, together with the others of this turn of the loop."""
        if not self._answered and not self._receiving:
            self._loop.call_soon(self._send)
        self._answered.append(item)

    def _pass_level(self) -> None:
        """Let the engine know which lines are not even to be formatted."""
        level = min(255, *(logger.getEffectiveLevel() for logger in LOGGERS))
        if level != self._level:
            self._level = level
            self._engine.set_log_level(level)

    def _send(self) -> None:
        if self._answered:
            answered, self._answered = self._answered, []
            # A handler may have changed it, and the engine logs what follows from its outcome.
            self._pass_level()
            self.refresh()
            self._engine.complete(answered)
