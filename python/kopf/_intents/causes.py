"""Causes of handler calls, with the arguments of the handlers.

Tests can construct these classes to simulate the context of a handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from kopf._objects.bodies import Body
from kopf._objects.dataclass_methods import DataclassMethods
from kopf._objects.diffs import EMPTY, Diff
from kopf._objects.indices import Index
from kopf._objects.memos import AnyMemo
from kopf._objects.patches import Patch
from kopf._objects.reasons import Activity, Reason, WebhookType
from kopf._objects.resources import Resource
from kopf._objects.stoppers import DaemonStopper
from kopf._objects.typedefs import BodyEssence, HandlerId, RawEvent, RawEventType

if TYPE_CHECKING:
    from kopf._objects.reviews import Headers, Operation, SSLPeer, UserInfo

Arguments = dict[str, Callable[[Any], Any]]
"""How arguments are made of a cause, by their names."""


def _named(*names: str) -> Arguments:
    return {name: attrgetter(name) for name in names}


@dataclass(eq=False, repr=False)
class Cause(DataclassMethods):
    """The base of all causes. The indices are arguments too, and they win over all other arguments."""

    logger: Any
    indices: Mapping[str, Index[Any, Any]]
    memo: AnyMemo

    _arguments: ClassVar[Arguments] = _named("logger", "memo")

    @property
    def _kwargs(self) -> dict[str, Any]:
        return {name: make(self) for name, make in self._arguments.items()}

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments of filters and of other callbacks; handlers get more."""
        return {**self._kwargs, **self.indices}

    @property
    def sync_kwargs(self) -> dict[str, Any]:
        """The arguments of synchronous handlers."""
        return self.kwargs

    @property
    def async_kwargs(self) -> dict[str, Any]:
        """The arguments of asynchronous handlers."""
        return self.kwargs


@dataclass(eq=False, repr=False)
class ActivityCause(Cause):
    """Something that concerns the operator as a whole."""

    activity: Activity
    settings: Any

    _arguments: ClassVar[Arguments] = {**Cause._arguments, **_named("activity", "settings")}


@dataclass(eq=False, repr=False)
class ResourceCause(Cause):
    """Something that concerns one object."""

    resource: Resource
    patch: Patch
    body: Body

    _arguments: ClassVar[Arguments] = {
        **Cause._arguments,
        **_named("resource", "patch", "body"),
        "spec": attrgetter("body.spec"),
        "meta": attrgetter("body.metadata"),
        "status": attrgetter("body.status"),
        "uid": attrgetter("body.metadata.uid"),
        "name": attrgetter("body.metadata.name"),
        "namespace": attrgetter("body.metadata.namespace"),
        "labels": attrgetter("body.metadata.labels"),
        "annotations": attrgetter("body.metadata.annotations"),
    }


@dataclass(eq=False, repr=False)
class WatchingCause(ResourceCause):
    """A raw watch event."""

    type: RawEventType
    event: RawEvent

    _arguments: ClassVar[Arguments] = {**ResourceCause._arguments, **_named("type", "event")}


@dataclass(eq=False, repr=False)
class IndexingCause(ResourceCause):
    """An object is to be indexed; its patch goes nowhere."""


@dataclass(eq=False, repr=False)
class SpawningCause(ResourceCause):
    """Daemons and timers of an object are to be spawned or stopped."""

    reset: bool


@dataclass(eq=False, repr=False)
class DaemonCause(ResourceCause):
    """A daemon or a timer is running."""

    stopper: DaemonStopper

    @property
    def sync_kwargs(self) -> dict[str, Any]:
        """With the flag for threads."""
        return {**self._kwargs, "stopped": self.stopper.sync_waiter, **self.indices}

    @property
    def async_kwargs(self) -> dict[str, Any]:
        """With the flag for event loops."""
        return {**self._kwargs, "stopped": self.stopper.async_waiter, **self.indices}


@dataclass(eq=False, repr=False)
class ChangingCause(ResourceCause):
    """An object has changed in its essence, or was found at the start of the operator."""

    initial: bool
    reason: Reason
    diff: Diff = EMPTY
    old: BodyEssence | None = None
    new: BodyEssence | None = None

    _arguments: ClassVar[Arguments] = {
        **ResourceCause._arguments,
        **_named("reason", "diff", "old", "new"),
    }

    @property
    def deleted(self) -> bool:
        """Whether the object is being deleted."""
        return self.body.metadata.deletion_timestamp is not None


@dataclass(eq=False, repr=False)
class WebhookCause(ResourceCause):
    """An admission request about an object."""

    dryrun: bool
    reason: WebhookType | None
    webhook: HandlerId | None
    headers: Headers
    sslpeer: SSLPeer
    userinfo: UserInfo
    warnings: list[str]
    operation: Operation | None
    subresource: str | None
    old: Body | None = None
    new: Body | None = None
    diff: Diff | None = None

    _arguments: ClassVar[Arguments] = {
        **ResourceCause._arguments,
        **_named("dryrun", "headers", "sslpeer", "userinfo", "warnings", "operation", "subresource"),
        **_named("old", "new", "diff"),
    }
