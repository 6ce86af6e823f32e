"""Errors of the API client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kopf._objects.bodies import Body


class Cause(NamedTuple):
    """One cause of a rejection."""

    reason: str
    """The machine-readable reason."""
    message: str
    field: str
    """The field, such as `spec.replicas`; empty if the cause is not about a field."""


class FieldConflict(NamedTuple):
    """A field that another field manager owns."""

    manager: str
    field: str
    """The field, such as `.spec.replicas`."""
    subresource: str
    """The subresource by which the manager owns the field; empty for the object itself."""


class ApiError(Exception):
    """A request to the API server has failed."""

    __module__ = "kopf"

    def __init__(
        self,
        text: str = "",
        *,
        code: int = 0,
        reason: str = "",
        message: str = "",
        details: Mapping[str, Any] | None = None,
        causes: tuple[Cause, ...] = (),
        uncertain: bool = False,
    ) -> None:
        super().__init__(text)
        self.code = code
        """The HTTP status; 0 if there is no response."""
        self.reason = reason
        """The server's machine-readable reason, such as `NotFound`."""
        self.message = message
        """The server's message, or the error of the connection."""
        self.details = details or {}
        """The `details` of the server's `Status` object."""
        self.causes = causes
        """The causes in the details."""
        self.uncertain = uncertain
        """Whether the server may have executed the request."""


class NotFound(ApiError):
    """There is no such object, or no such subresource (404)."""

    __module__ = "kopf.client"


class AlreadyExists(ApiError):
    """An object of this name exists already (409)."""

    __module__ = "kopf.client"

    body: Body | None = None
    """The object, if it may be the one that this call has created: then `uncertain` is true."""


class Conflict(ApiError):
    """The object has changed meanwhile (409)."""

    __module__ = "kopf.client"


class ApplyConflict(Conflict):
    """Other field managers own some of the applied fields, with other values (409)."""

    __module__ = "kopf.client"

    managers: tuple[FieldConflict, ...] = ()
    """The fields and their managers."""


class Forbidden(ApiError):
    """The credentials do not allow the request (401, 403)."""

    __module__ = "kopf.client"


class Invalid(ApiError):
    """The server does not accept the content (400, 422); `causes` has the fields."""

    __module__ = "kopf.client"


class Gone(ApiError):
    """The resource version or the continuation is too old (410)."""

    __module__ = "kopf.client"


class TooManyRequests(ApiError):
    """The server rejects the request for now (429)."""

    __module__ = "kopf.client"

    retry_after: float | None = None
    """The seconds after which the server asks to repeat the request."""


class ServerFailed(ApiError):
    """The server has failed (5xx)."""

    __module__ = "kopf.client"


class Unreachable(ApiError):
    """There is no connection, or no complete response."""

    __module__ = "kopf.client"


class TimedOut(ApiError):
    """There is no response in time."""

    __module__ = "kopf.client"


class UnknownKind(LookupError):
    """The server serves no resource of this name."""

    __module__ = "kopf.client"


class AmbiguousKind(LookupError):
    """The name means several resources: specify the group."""

    __module__ = "kopf.client"
