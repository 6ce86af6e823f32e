"""The requests of a webhook server for a function that is not the operator's own, such as a wrapper."""

from __future__ import annotations

import asyncio
import json
import logging

from kopf._objects.reviews import WebhookFn
from kopf._runtime import bridge
from kopf._runtime.admission import AmbiguousResourceError, UnknownResourceError, WebhookError

logger = logging.getLogger("kopf._kits.webhooks")


class RequestPump:
    """Passes the requests of a server to a function that is not the operator's own, such as a wrapper."""

    def __init__(self, server: bridge.WebhookServer, fn: WebhookFn) -> None:
        super().__init__()
        self._server = server
        self._fn = fn
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> None:
        self._loop.add_reader(self._server.fileno(), self._receive)

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._server.fileno())
        for task in self._tasks:
            task.cancel()

    def _receive(self) -> None:
        for call in self._server.poll():
            task = self._loop.create_task(self._respond(call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _respond(self, call: bridge.WebhookRequest) -> None:
        try:
            request = json.loads(call.body)
        except ValueError as e:
            call.reject(400, str(e))
            return
        try:
            response = await self._fn(
                request, webhook=call.webhook, headers=call.headers, sslpeer=call.sslpeer
            )
            call.respond(response)
        except AmbiguousResourceError as e:
            call.reject(409, str(e) or repr(e))
        except UnknownResourceError as e:
            call.reject(404, str(e) or repr(e))
        except WebhookError as e:
            call.reject(400, str(e) or repr(e))
        except Exception as e:
            logger.exception(f"The admission request cannot be served: {e}")
            call.reject(500, "Internal Server Error")
