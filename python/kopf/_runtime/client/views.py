"""Views of a client: the same connections with other options, or as another user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from kopf._runtime.bridge import ApiClient, CallFailure, UserStream
from kopf._runtime.client.failures import to_exception
from kopf._runtime.client.options import Validation, View


class ClientView:
    """The methods that clients for coroutines and for threads have in common."""

    __module__ = "kopf.client"

    def __init__(self, client: ApiClient, view: View) -> None:
        super().__init__()
        self._client = client
        self._view = view

    def using(
        self,
        *,
        dry_run: bool | None = None,
        manager: str | None = None,
        timeout: float | None = None,
        validation: Validation | None = None,
        retries: bool | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Self:
        """The same client with other options: it shares the connections and everything else.

        Args:
            dry_run: Whether the server stores nothing.
            timeout: The timeout of a call with all its retries, in seconds.
            validation: The treatment of unknown fields by the server: `strict`, `warn` or `ignore`.
            retries: Whether failed requests are repeated.
            headers: Additional headers.
        """
        view = self._view.using(
            headers, dry_run=dry_run, manager=manager, timeout=timeout, validation=validation, retries=retries
        )
        return type(self)(self._client, view)

    def impersonating(
        self,
        user: str,
        *,
        groups: Sequence[str] = (),
        uid: str | None = None,
        extra: Mapping[str, str | Sequence[str]] | None = None,
    ) -> Self:
        """The same client as another user: the credentials need the permission to impersonate.

        Args:
            user: The name of the user.
            groups: The groups.
            extra: Other attributes.
        """
        return type(self)(self._client, self._view.impersonating(user, groups, uid, extra))

    def in_namespace(self, namespace: str) -> Self:
        """The same client with another namespace for the calls that specify none."""
        return type(self)(self._client, self._view.in_namespace(namespace))

    def _opened(self, stream: UserStream | CallFailure) -> UserStream:
        if isinstance(stream, CallFailure):
            raise to_exception(stream)
        return stream
