"""Credentials that an embedding application gives to its operator, at the start or later."""

from __future__ import annotations

from typing import Any

from kopf._objects.credentials import KubeContext, OnlyCredentials


class GivenCredentials:
    """The credentials in the vault of an operator, which can be filled until they are needed, and later."""

    def __init__(self, vault: Any) -> None:
        super().__init__()
        is_exclusive = isinstance(vault, OnlyCredentials)
        self.exclusive: dict[str, KubeContext] | None = dict(vault.items()) if is_exclusive else None
        """The only credentials that the operator may use; None if it can use others, too."""
        self._vault = None if is_exclusive else vault
        self._taken: dict[str, KubeContext] = {}
        self._invalid: dict[str, KubeContext] = {}

    def current(self) -> dict[str, KubeContext]:
        """The credentials in the vault that can be valid, by their keys."""
        items = dict(self._vault.items()) if self._vault is not None else {}
        return {str(key): info for key, info in items.items() if self._invalid.get(str(key)) != info}

    def take(self) -> dict[str, KubeContext]:
        """The current credentials, to be used by the engine."""
        found = self.current()
        self._taken |= found
        return found

    def take_new(self) -> dict[str, KubeContext]:
        """The credentials that have been added since the last ones were taken. Those have become invalid."""
        self._invalid = dict(self._taken)
        return self.take()
