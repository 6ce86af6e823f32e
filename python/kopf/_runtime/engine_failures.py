"""Exceptions for the failures that end the engine."""

from __future__ import annotations

from kopf._objects import credentials
from kopf._runtime.bridge import current_address
from kopf._runtime.errors import EngineError, OperationalError

Failure = tuple[str, str, str | None]
"""A failure of the engine: its kind, its message, and maybe an explanation."""


class APIError(OperationalError):
    """The API server has rejected a request that the operator cannot work without."""


def to_exception(failure: Failure, login_error: Exception | None = None) -> Exception:
    """Make the exception for a failure; that of the login handlers is known if they have raised one."""
    kind, message, explanation = failure
    if kind == "login" and login_error is not None:
        return login_error
    if kind in ("login", "activity"):
        return credentials.LoginError(message)
    error = APIError(message) if kind == "api" else EngineError(message)
    if kind == "unreachable" and explanation is not None:
        explanation = _name_context(explanation)
    error.explanation = explanation
    return error


def _name_context(text: str) -> str:
    """Add the context of the kubeconfigs to the text, unless the address is not from there."""
    context, path, server = current_address() or ("", "", "")
    if not server or f" {server.rstrip('/')}: " not in text:
        return text
    return (
        f"{text} The address comes from the context {context!r} of the kubeconfig {path}. Check that this "
        "cluster is running, or choose another one with --context or --kubeconfig."
    )
