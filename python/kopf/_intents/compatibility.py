"""Behaviours of Kopf 1.45 that `KOPF_COMPAT=1.45` or `settings.process.compat` restore.

The environment applies to the process: its commands, declarations and log lines. The settings apply to one
operator; by default, they are those of the environment. The engine gets one flag in its settings.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from kopf._objects.dataclass_methods import FrozenDataclassMethods

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in `typing`, which is not loaded for that
    from typing import Protocol

    # The settings import this module.
    class _ProcessSettings(Protocol):
        compat: str | None

    class _OperatorSettings(Protocol):
        @property
        def process(self) -> _ProcessSettings: ...


VERSION = "1.45"
"""The only version of Kopf whose behaviour can be restored."""

VARIABLE = "KOPF_COMPAT"


@dataclass(frozen=True, eq=False, repr=False)
class Compatibility(FrozenDataclassMethods):
    """The behaviours of Kopf 1.45: each flag is one that differs, and is restored if the flag is set."""

    # Of the process.
    ignores_config_file: bool = False
    """Commands read no options from `pyproject.toml`."""

    accepts_any_arguments: bool = False
    """Commands accept missing files, files that cannot be loaded, and URLs that cannot be served."""

    raises_command_errors: bool = False
    """Commands end with the traceback of their error, without a report."""

    keeps_errors_unchanged: bool = False
    """Errors of files and declarations do not contain what has failed."""

    accepts_bare_decorators: bool = False
    """A handler after a decorator without arguments is taken as a selector of resources."""

    ignores_unknown_settings: bool = False
    """Unknown settings can be set without a warning."""

    keeps_control_characters: bool = False
    """Control characters in log lines are not escaped."""

    shares_identity_of_pod: bool = False
    """`kopf freeze` and `kopf resume` have the identity of the operator in the same pod."""

    # Of an operator.
    starts_silently: bool = False
    """Neither the served resources nor mistakes in declarations are logged."""

    logs_whole_tracebacks: bool = False
    """Tracebacks are logged for all errors, with all frames, and without hints."""

    logs_bare_keys: bool = False
    """The log line of a handler that failed with a `KeyError` has only the key."""

    prefers_service_account: bool = False
    """The service account of the pod has precedence over the kubeconfig of the environment."""

    hides_login_reasons: bool = False
    """Errors of client libraries that cannot log in do not contain the reason."""

    waits_for_logins: bool = False
    """The exit of the operator waits for running login handlers."""

    skips_cleanup_without_login: bool = False
    """Cleanup handlers are not called if the operator never got credentials."""

    receives_ignored_interrupts: bool = False
    """SIGINT stops the operator even if it is ignored when the operator starts."""

    ignores_second_signal: bool = False
    """A second signal does not stop the operator at once, and the shutdown reports no running handlers."""

    ignores_blocked_loops: bool = False
    """The event loop is not monitored for handlers that block it."""

    has_no_health_checks: bool = False
    """There are no health checks but the liveness endpoint, which is opened after the startup handlers."""

    has_no_leader_election: bool = False
    """There is no leader election."""

    uses_compatible_engine: bool = False
    """The engine restores its own behaviours, see `settings.compat` in its crates."""


CURRENT = Compatibility()
KOPF_1_45 = Compatibility(**{field.name: True for field in fields(Compatibility)})


def environment_version() -> str | None:
    """The version of the environment, which may be unknown; None if there is none."""
    return os.environ.get(VARIABLE) or None


def of_environment() -> Compatibility:
    """The behaviours of the process."""
    return _of_version(environment_version())


def of_settings(settings: _OperatorSettings) -> Compatibility:
    """The behaviours of an operator. Startup handlers can change them."""
    return _of_version(settings.process.compat)


def check_version(version: str | None) -> None:
    """Raise `ValueError` if the version is unknown. Until the operator starts, it has no effect."""
    if version not in (None, VERSION):
        raise ValueError(
            f"There is no compatibility with {version!r}: settings.process.compat, or {VARIABLE},"
            f" can only be {VERSION!r} or nothing."
        )


def _of_version(version: str | None) -> Compatibility:
    return KOPF_1_45 if version == VERSION else CURRENT
