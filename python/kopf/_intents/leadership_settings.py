"""Settings of leader election; imported when they are used for the first time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(slots=True)
class LeadershipSettings:
    """Leader election: of several replicas, one handles the objects, and the others stand by.

    Read once, after startup handlers.
    """

    enabled: bool = False
    """Whether to elect a leader."""

    name: str | None = None
    """The name of the Lease that all replicas share, and no other operator uses; required if enabled."""

    namespace: str | None = None
    """The namespace of the Lease; None: that of the pod, or of the context of the kubeconfig."""

    identity: str | None = None
    """The holder in the Lease, which must be unique for each process; None: the host and a random suffix."""

    lease_duration: int = 15
    """For how many seconds other replicas respect the lease after its last renewal: a whole number, more
    than `renew_deadline` and `loss_grace` together."""

    renew_deadline: float = 10
    """For how many seconds the leader works after its last successful renewal: more than 1.2 times the
    `retry_period`."""

    retry_period: float = 2
    """The seconds between renewals, and between the checks of the lease by other replicas."""

    loss_grace: float = 3.0
    """The seconds in which cancelled handlers may end when the lease is lost."""

    release: bool = True
    """Whether the leader releases the lease when it exits, so that another replica continues at once."""

    warm: bool = True
    """Whether replicas that stand by watch the cluster, so that their caches are filled; False: they connect
    only when they lead."""

    preconditions: bool = True
    """Whether the API server rejects patches that were decided for an older state of the object."""

    dev: bool = False
    """Whether an operator with `--dev` takes part in the election, instead of pausing the leader through a
    peering. Set by `--leader-elect`."""

    on_lost: Literal["standby", "exit"] = "standby"
    """What follows the loss of the lease: the replica stands by again, or the operator ends with an error."""
