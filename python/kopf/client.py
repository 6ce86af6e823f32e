"""The API client: its types, its errors, and conditions for `wait_for`."""

from kopf._objects.apierrors import (
    AlreadyExists,
    AmbiguousKind,
    ApiError,
    ApplyConflict,
    Cause,
    Conflict,
    FieldConflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerFailed,
    TimedOut,
    TooManyRequests,
    UnknownKind,
    Unreachable,
)
from kopf._objects.changes import ChangeEvent
from kopf._runtime.client.api import Api
from kopf._runtime.client.conditions import complete, condition, established, exists, field, gone, ready
from kopf._runtime.client.listing import Listing
from kopf._runtime.client.operations import Answer
from kopf._runtime.client.sync_api import SyncApi

__all__ = [
    "AlreadyExists",
    "AmbiguousKind",
    "Answer",
    "Api",
    "ApiError",
    "ApplyConflict",
    "Cause",
    "ChangeEvent",
    "Conflict",
    "FieldConflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "Listing",
    "NotFound",
    "ServerFailed",
    "SyncApi",
    "TimedOut",
    "TooManyRequests",
    "UnknownKind",
    "Unreachable",
    "complete",
    "condition",
    "established",
    "exists",
    "field",
    "gone",
    "ready",
]
