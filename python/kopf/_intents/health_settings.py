"""Settings of the health checks; imported when they are used for the first time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(slots=True)
class HealthSettings:
    """The checks of `/livez`, `/readyz` and `/startupz`. Limits are in seconds; None disables a check.

    Read once, after startup handlers.
    """

    address: str | None = None
    """The host and the port of the status endpoints, as in `0.0.0.0:8080`; None: those of `--liveness`."""

    loop_limit: float | None = 60
    """`loop`: the seconds for which the event loop is blocked."""

    engine_limit: float | None = 30
    """`engine`: the seconds in which the main task of the engine has not run."""

    border_limit: float | None = 120
    """`border`: the seconds for which a task of the engine waits for Python, although the event loop runs."""

    supervision_limit: float | None = 60
    """`streams`: the seconds for which a watch that must exist does not exist."""

    deaf_limit: float | None = 300
    """`deaf`: the seconds in which a watch has neither received anything nor tried to connect."""

    stall_limit: float | None = 900
    """`stuck`: the seconds for which the engine itself works on one object."""

    handler_limit: float | None = None
    """`handlers`: the duration of one call of a handler, except for daemons, in seconds."""

    credentials_limit: float | None = 15
    """`credentials`: the seconds for which the API server rejects all credentials."""

    ready_needs_streams: bool = False
    """Whether the operator is not ready while any watch is failing, also after the first listing."""

    ready_when: Literal["synced", "leading"] = "synced"
    """Which replicas of a leader election are ready: those that watch the cluster, or only the leader."""
