"""Leader election of an operator: the checks of its settings, and what the engine needs of them.

Operators without leader election do not load this module.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from kopf._intents import compatibility
from kopf._intents.settings import OperatorSettings
from kopf._runtime.errors import OperationalError

NAMELESS = (
    "Leader election needs a lease name that all replicas share and no other operator uses: --lease=NAME."
)


STANDALONE = (
    "With --dev, the operator takes no part in the leader election, and pauses the leader through a peering:"
    " omit --standalone, or set --leader-elect."
)
DEV_PRIORITY = 666
"""The priority of `--dev` in peerings."""


class ElectionUsageError(OperationalError):
    """The settings of leader election are incomplete or contradictory."""

    exit_code = 2


def steps_aside(settings: OperatorSettings) -> bool:
    """Whether the operator takes no part in the configured election, but pauses the leader: with `--dev`.

    Raises:
        ElectionUsageError: Peering is disabled, so that it cannot pause the leader.
    """
    peering = settings.peering
    if peering.priority != DEV_PRIORITY or settings.leadership.dev:
        return False
    if peering.standalone:
        raise ElectionUsageError(STANDALONE)
    return True


def serialize_election(settings: OperatorSettings) -> dict[str, Any]:
    """Describe the leader election for the engine: part of its settings.

    Raises:
        ElectionUsageError: The name of the Lease is missing, or the behaviour of Kopf 1.45 is requested.
    """
    leadership = settings.leadership
    if compatibility.of_settings(settings).has_no_leader_election:
        raise ElectionUsageError(
            f"Kopf {compatibility.VERSION} has no leader election: disable it, or unset"
            f" {compatibility.VARIABLE}."
        )
    if not leadership.name:
        raise ElectionUsageError(NAMELESS)
    if leadership.on_lost not in ("standby", "exit"):
        raise ElectionUsageError(
            f"settings.leadership.on_lost must be 'standby' or 'exit', not {leadership.on_lost!r}."
        )
    durations = ("lease_duration", "renew_deadline", "retry_period", "loss_grace", "warm")
    return {
        "name": leadership.name,
        "namespace": leadership.namespace or pod_namespace(),
        "identity": leadership.identity or unique_identity(),
        "options": {name: getattr(leadership, name) for name in durations},
        "release": leadership.release,
        "preconditions": leadership.preconditions,
        "on_lost": leadership.on_lost,
    }


def pod_namespace() -> str | None:
    """The namespace of the pod, if the manifest of the pod passes it."""
    return os.environ.get("POD_NAMESPACE") or None


def unique_identity() -> str:
    """An identity that no other process has, not even the same container after its restart."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.urandom(4).hex()}"
