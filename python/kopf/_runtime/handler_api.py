"""The argument `api` of handlers: a view of the engine's client for the handled object.

Activities before the start of the engine and after its end get a client with a separate connection. The
client is imported when the first handler needs it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from kopf._intents import serialization
from kopf._intents.settings import OperatorSettings
from kopf._runtime.bridge import ApiClient, Engine, __version__
from kopf._runtime.causes import LazyReconcilingCause
from kopf._runtime.context import cause_var

if TYPE_CHECKING:
    from kopf._runtime.client.api import Api
    from kopf._runtime.client.options import View
    from kopf._runtime.client.sync_api import SyncApi

AuthenticateFn = Callable[[], Awaitable[list[tuple[str, dict[str, Any]]] | None]]


@functools.cache
def _client_types() -> tuple[type[Api], type[SyncApi], type[View]]:
    """The classes of clients, imported when the first handler needs one."""
    from kopf._runtime.client.api import Api
    from kopf._runtime.client.options import View
    from kopf._runtime.client.sync_api import SyncApi

    return Api, SyncApi, View


class OperatorApi:
    """Makes the argument for the handlers of one operator.

    `retries` is whether failed requests are retried, as usual; otherwise, they raise at once.
    """

    def __init__(
        self, settings: OperatorSettings, authenticate: AuthenticateFn, *, retries: bool = True
    ) -> None:
        super().__init__()
        self._retries = retries
        self._settings = settings
        self._authenticate = authenticate
        self._engine: Engine | None = None
        self._client: ApiClient | None = None
        self._lock = threading.Lock()

    def attach(self, engine: Engine) -> None:
        """Use the connections of the engine from now on."""
        self.close()
        self._engine = engine

    def detach(self) -> None:
        """The engine has ended."""
        self._engine = self._client = None

    def close(self) -> None:
        """Close the separate connection, if there is one."""
        if self._client is not None and self._engine is None:
            self._client.close()
        self._client = None

    async def provide(self, kwargs: Mapping[str, Any], *, is_async: bool) -> Api | SyncApi:
        """Make the argument for a handler with these other arguments."""
        if self._client is None:
            self._client = await self._open()
        view = self._view(kwargs)
        Api, SyncApi, _ = _client_types()
        return Api(self._client, view) if is_async else SyncApi(self._client, view)

    async def provide_blocking(self) -> SyncApi:
        """Make the client for other threads, with no object."""
        if self._client is None:
            self._client = await self._open()
        _, SyncApi, _ = _client_types()
        return SyncApi(self._client, self._view({}))

    def provide_sync(self, kwargs: Mapping[str, Any]) -> SyncApi:
        """Make the client for a handler in a thread, which does not name the argument."""
        _, SyncApi, _ = _client_types()
        with self._lock:
            if self._client is None:
                if self._engine is None:
                    raise RuntimeError(
                        "The operator is not running: pass api=..., the argument of the handler."
                    )
                self._client = self._engine.client()
        return SyncApi(self._client, self._view(kwargs))

    def _view(self, kwargs: Mapping[str, Any]) -> View:
        _, _, View = _client_types()
        namespace = kwargs.get("namespace")
        settings = self._settings.client
        cause = cause_var.get(None)
        return View(
            namespace=namespace,
            namespace_known=namespace is not None or "namespace" not in kwargs,
            manager=settings.field_manager,
            timeout=settings.timeout,
            retries=self._retries,
            run=cause.run if isinstance(cause, LazyReconcilingCause) else None,
        )

    async def _open(self) -> ApiClient:
        if self._engine is not None:
            return self._engine.client()
        return ApiClient.connect(
            agent=f"kopf/{__version__}",
            settings=serialization.serialize_settings(self._settings),
            credentials=await self._authenticate(),
        )
