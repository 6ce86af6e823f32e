"""Views of a client: its options, and the native client behind all views."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from kopf._runtime.bridge import ApiClient, RequestOptions

Validation = Literal["strict", "warn", "ignore"]
_VALIDATIONS = {"strict": "Strict", "warn": "Warn", "ignore": "Ignore"}


# Not frozen: each call of a reconciler creates one, and that would take three times as long.
@dataclass
class View:
    """The options of calls. They are not changed after the creation."""

    namespace: str | None = None
    namespace_known: bool = True
    dry_run: bool = False
    manager: str | None = None
    validation: Validation | None = None
    timeout: float | None = None
    retries: bool = True
    headers: tuple[tuple[str, str], ...] = ()
    run: int | None = None
    """The call of a reconciler that makes the calls."""

    def __post_init__(self) -> None:
        if self.timeout is not None and not (self.timeout > 0 and math.isfinite(self.timeout)):
            raise ValueError(f"timeout must be a positive number of seconds, not {self.timeout!r}.")
        if self.validation is not None and self.validation not in _VALIDATIONS:
            names = ", ".join(_VALIDATIONS)
            raise ValueError(f"validation must be one of {names}, not {self.validation!r}.")
        if self.headers:
            _ = self.native  # invalid headers are errors here

    @functools.cached_property
    def native(self) -> RequestOptions:
        """The options for the engine. Most calls of reconcilers send no requests with their views."""
        return RequestOptions(
            namespace=self.namespace,
            namespace_known=self.namespace_known,
            dry_run=self.dry_run,
            manager=self.manager,
            validation=None if self.validation is None else _VALIDATIONS[self.validation],
            timeout=self.timeout,
            retries=self.retries,
            headers=list(self.headers),
            run=self.run,
        )

    def using(self, headers: Mapping[str, str] | None = None, **options: Any) -> View:
        """The same with other options; headers are added."""
        changes = {name: value for name, value in options.items() if value is not None}
        added = tuple((headers or {}).items())
        return replace(self, **changes, headers=self.headers + added)

    def impersonating(
        self,
        user: str,
        groups: Sequence[str],
        uid: str | None,
        extra: Mapping[str, str | Sequence[str]] | None,
    ) -> View:
        """The same as another user."""
        if isinstance(groups, str):
            raise TypeError("groups must be a list of names, not a string.")
        headers = [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
        if uid is not None:
            headers.append(("Impersonate-Uid", uid))
        for key, values in (extra or {}).items():
            import urllib.parse

            name = f"Impersonate-Extra-{urllib.parse.quote(key, safe='')}"
            headers += [(name, value) for value in ([values] if isinstance(values, str) else values)]
        others = tuple(item for item in self.headers if not item[0].lower().startswith("impersonate-"))
        return replace(self, headers=others + tuple(headers))

    def in_namespace(self, namespace: str) -> View:
        """The same with this default namespace."""
        return replace(self, namespace=namespace, namespace_known=True)


def log_records(client: ApiClient) -> None:
    """Log the records of a client without an operator."""
    for record in client.take_logs():
        logging.getLogger(record.logger).log(record.level, record.text)
