"""Clients without an operator."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

from kopf._intents import serialization
from kopf._intents.settings import OperatorSettings
from kopf._objects.credentials import ConnectionInfo
from kopf._runtime.activities import serialize_credentials
from kopf._runtime.bridge import ApiClient, __version__
from kopf._runtime.client.api import Api
from kopf._runtime.client.options import View, log_records
from kopf._runtime.client.sync_api import SyncApi

KubeconfigPath = str | os.PathLike[str]


@contextlib.asynccontextmanager
async def connect(
    info: ConnectionInfo | None = None,
    *,
    context: str | None = None,
    kubeconfig: KubeconfigPath | None = None,
    user_agent: str | None = None,
) -> AsyncIterator[Api]:
    """Connect to a cluster without an operator, for coroutines.

    The credentials are those of `info`, or of the given kubeconfig or context. Without any of them, they
    are those of an operator without login handlers: of the kubeconfigs in `KUBECONFIG`, else of the pod's
    service account, else of `~/.kube/config`. The connection is closed at the end of the block.

    Args:
        info: The server and the credentials.
        context: A context of the kubeconfig; by default, its current one.
        kubeconfig: The path of the kubeconfig; by default, `KUBECONFIG`, or `~/.kube/config`.
        user_agent: The user agent of the requests.
    """
    client = open_client(info, context=context, kubeconfig=kubeconfig, user_agent=user_agent)
    try:
        yield Api(client, View())
    finally:
        close_client(client)


@contextlib.contextmanager
def connect_sync(
    info: ConnectionInfo | None = None,
    *,
    context: str | None = None,
    kubeconfig: KubeconfigPath | None = None,
    user_agent: str | None = None,
) -> Iterator[SyncApi]:
    """Connect to a cluster without an operator, for threads; the same as `connect()` otherwise.

    Args:
        info: The server and the credentials.
        context: A context of the kubeconfig; by default, its current one.
        kubeconfig: The path of the kubeconfig; by default, `KUBECONFIG`, or `~/.kube/config`.
        user_agent: The user agent of the requests.
    """
    client = open_client(info, context=context, kubeconfig=kubeconfig, user_agent=user_agent)
    try:
        yield SyncApi(client, View())
    finally:
        close_client(client)


def open_client(
    info: ConnectionInfo | None,
    *,
    context: str | None = None,
    kubeconfig: KubeconfigPath | None = None,
    user_agent: str | None = None,
) -> ApiClient:
    """Create a client, which must be closed."""
    if info is not None and (context is not None or kubeconfig is not None):
        raise TypeError("Pass either the credentials, or a kubeconfig or its context, but not both.")
    credentials: list[tuple[str, dict[str, Any]]] | None = None
    if info is not None:
        credentials = [("connect", serialize_credentials(info))]
    return ApiClient.connect(
        agent=user_agent or f"kopf/{__version__}",
        settings=serialization.serialize_settings(OperatorSettings()),
        credentials=credentials,
        kubeconfig=None if kubeconfig is None else os.fspath(kubeconfig),
        context=context,
    )


def close_client(client: ApiClient) -> None:
    """Close the client, after its last log lines."""
    log_records(client)
    client.close()
