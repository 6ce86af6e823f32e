"""Enumerations of reasons, activities, and webhook types."""

from __future__ import annotations

import enum


class Reason(enum.StrEnum):
    """Why an object is handled: its change since its last handled state."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RESUME = "resume"
    NOOP = "noop"
    FREE = "free"
    GONE = "gone"


HANDLER_REASONS = (Reason.CREATE, Reason.UPDATE, Reason.DELETE, Reason.RESUME)
"""The reasons for which there can be handlers; the others are only for the framework."""


class Activity(enum.StrEnum):
    """Activities of the operator as a whole, regardless of objects."""

    STARTUP = "startup"
    CLEANUP = "cleanup"
    AUTHENTICATION = "authentication"
    PROBE = "probe"


class WebhookType(enum.StrEnum):
    """Which configuration of webhooks a handler belongs to."""

    VALIDATING = "validating"
    MUTATING = "mutating"
