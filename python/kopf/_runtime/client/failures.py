"""Exceptions for the engine's failures."""

from __future__ import annotations

from collections.abc import Mapping

from kopf._objects import apierrors
from kopf._objects.applied import OwnedByAnother
from kopf._objects.bodies import Body
from kopf._objects.credentials import LoginError
from kopf._runtime.bridge import CallFailure

_ERRORS: Mapping[str, type[Exception]] = {
    "ValueError": ValueError,
    "RuntimeError": RuntimeError,
    "LookupError": LookupError,
    "LoginError": LoginError,
    "OwnedByAnother": OwnedByAnother,
    "UnknownKind": apierrors.UnknownKind,
    "AmbiguousKind": apierrors.AmbiguousKind,
}
_API_ERRORS: Mapping[str, type[apierrors.ApiError]] = {
    cls.__name__: cls
    for cls in (
        apierrors.ApiError,
        apierrors.NotFound,
        apierrors.AlreadyExists,
        apierrors.Conflict,
        apierrors.ApplyConflict,
        apierrors.Forbidden,
        apierrors.Invalid,
        apierrors.Gone,
        apierrors.TooManyRequests,
        apierrors.ServerFailed,
        apierrors.Unreachable,
        apierrors.TimedOut,
    )
}


def to_exception(failure: CallFailure) -> Exception:
    """Make the exception for a failure."""
    if failure.kind not in _API_ERRORS:
        return _ERRORS[failure.kind](failure.text)
    error = _API_ERRORS[failure.kind](
        failure.text,
        code=failure.code,
        reason=failure.reason,
        message=failure.message,
        details=failure.details,
        causes=tuple(apierrors.Cause(*cause) for cause in failure.causes),
        uncertain=failure.uncertain,
    )
    if isinstance(error, apierrors.AlreadyExists) and failure.existing is not None:
        error.body = Body(failure.existing)
    elif isinstance(error, apierrors.ApplyConflict):
        error.managers = tuple(apierrors.FieldConflict(*conflict) for conflict in failure.managers)
    elif isinstance(error, apierrors.TooManyRequests):
        error.retry_after = failure.retry_after
    return error
