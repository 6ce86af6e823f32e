"""The Lease of a leader election, as commands show it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from kopf._cli.cluster_session import Session
from kopf._cli.kubeconfigs import default_namespace
from kopf._cli.peering_records import warn_unreadable
from kopf._cli.tables import format_age, parse_time
from kopf._intents.serialization import has_leader_election
from kopf._intents.settings import OperatorSettings
from kopf._objects.apierrors import ApiError
from kopf._runtime.client.sync_api import SyncApi

LEASES = "leases.coordination.k8s.io"


@dataclass(frozen=True)
class Holder:
    """The holder of a Lease, if there is one.

    Its age is by the clock of the server. It never decides who leads.
    """

    namespace: str
    name: str
    identity: str | None
    age: float | None = None
    """Seconds since the last renewal."""
    duration: float = 0.0
    term: int | None = None

    @property
    def is_live(self) -> bool:
        """Whether there is a holder that has renewed the Lease in time."""
        return self.identity is not None and (self.age is None or self.age <= self.duration)

    def to_json(self) -> dict[str, Any]:
        """The Lease in the output of `-o json`."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "holder": self.identity,
            "term": self.term,
            "live": self.is_live,
        }

    def describe(self) -> str:
        """Describe the Lease and its holder."""
        place = f"lease {self.namespace}/{self.name}"
        if self.identity is None:
            return f"{place} has no holder"
        term = "" if self.term is None else f", term {self.term}"
        renewed = "" if self.age is None else f", renewed {format_age(max(self.age, 0))} ago"
        return f"{place} is held by {self.identity}{term}{renewed}"


def lease_namespace(settings: OperatorSettings) -> str | None:
    """The namespace of the Lease, as an operator finds it: set, or that of the pod, or of the kubeconfig."""
    return settings.leadership.namespace or os.environ.get("POD_NAMESPACE") or default_namespace()


def find_holder(api: SyncApi, settings: OperatorSettings, now: float) -> Holder | None:
    """The holder of the operator's Lease; None if its name or its namespace is not known."""
    name, namespace = settings.leadership.name, lease_namespace(settings)
    if name is None or namespace is None:
        return None
    lease = api.find(LEASES, name, namespace)
    spec: dict[str, Any] = dict(lease.get("spec") or {}) if lease is not None else {}
    renewed = spec.get("renewTime")
    return Holder(
        namespace,
        name,
        spec.get("holderIdentity") or None,
        now - parse_time(renewed) if renewed else None,
        float(spec.get("leaseDurationSeconds") or 0),
        spec.get("leaseTransitions"),
    )


def find_lease(session: Session, now: float, *, warn: bool = False) -> Holder | None:
    """The Lease of the operator, if it elects a leader; None if it cannot be read. `now` is in seconds.

    With `warn`, there is a warning if it cannot be read.
    """
    if not has_leader_election(session.settings):
        return None
    try:
        return find_holder(session.api, session.settings, now)
    except ApiError as error:
        if warn:
            warn_unreadable("the Lease", error)
        return None  # the permissions of the operator are not those of this command
