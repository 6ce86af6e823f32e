"""The API client of a cluster in tests, as users' code gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kopf._objects.credentials import ConnectionInfo

if TYPE_CHECKING:
    from kopf._runtime.bridge import ApiClient
    from kopf._runtime.client.api import Api
    from kopf._runtime.client.sync_api import SyncApi

USER_AGENT = "kopf-test-client"


class UserClient:
    """One client of a cluster, opened at its first use."""

    def __init__(self, info: ConnectionInfo) -> None:
        super().__init__()
        self._info = info
        self._client: ApiClient | None = None

    def _open(self) -> ApiClient:
        from kopf._runtime.client.connecting import open_client

        if self._client is None:
            self._client = open_client(self._info, user_agent=USER_AGENT)
        return self._client

    def blocking(self, namespace: str) -> SyncApi:
        """The client for threads, with this default namespace."""
        from kopf._runtime.client.options import View
        from kopf._runtime.client.sync_api import SyncApi

        return SyncApi(self._open(), View(namespace=namespace))

    def asynchronous(self, namespace: str) -> Api:
        """The client for coroutines, with this default namespace."""
        from kopf._runtime.client.api import Api
        from kopf._runtime.client.options import View

        return Api(self._open(), View(namespace=namespace))

    def close(self) -> None:
        """Close the client, if it was used."""
        if self._client is not None:
            self._client.close()
            self._client = None
