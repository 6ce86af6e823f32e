"""Types of the functions that users write, for type checkers.

All arguments are passed by keyword, and new ones can be added: every function must accept `**kwargs`. Only
functions that name `api` or `conditions` get these.
"""

from __future__ import annotations

import datetime
from collections.abc import Coroutine
from typing import Any, Protocol, TypeAlias, TypeVar

from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body, Meta, Spec, Status
from kopf._objects.diffs import Diff
from kopf._objects.logging_types import Logger
from kopf._objects.patches import Patch
from kopf._objects.resources import Resource
from kopf._objects.reviews import Headers, SSLPeer, UserInfo
from kopf._objects.stoppers import DaemonStopped
from kopf._objects.typedefs import Annotations, BodyEssence, Labels, RawEvent

T = TypeVar("T")
SyncOrAsync: TypeAlias = T | Coroutine[None, None, T]
Result: TypeAlias = "SyncOrAsync[object | None]"


class ActivityFn(Protocol):
    """A handler of startup, cleanup, login, probes."""

    def __call__(
        self, *, settings: OperatorSettings, retry: int, started: datetime.datetime,
        runtime: datetime.timedelta, logger: Logger, memo: Any, api: Any, param: Any = ..., **kwargs: Any,
    ) -> Result: ...  # fmt: skip


class IndexingFn(Protocol):
    """A handler of indexing."""

    def __call__(
        self, *, annotations: Annotations, labels: Labels, body: Body, meta: Meta, spec: Spec, status: Status,
        resource: Resource, uid: str, name: str, namespace: str | None, patch: Patch,
        logger: Logger, memo: Any, api: Any, param: Any = ..., **kwargs: Any,
    ) -> Result: ...  # fmt: skip


class WatchingFn(Protocol):
    """A handler of raw watch events."""

    def __call__(
        self, *, type: str, event: RawEvent, annotations: Annotations, labels: Labels, body: Body, meta: Meta,
        spec: Spec, status: Status, resource: Resource, uid: str, name: str,
        namespace: str | None, patch: Patch, logger: Logger, memo: Any, api: Any, param: Any = ...,
        **kwargs: Any,
    ) -> Result: ...  # fmt: skip


class ChangingFn(Protocol):
    """A handler of changes."""

    def __call__(
        self, *, retry: int, started: datetime.datetime, runtime: datetime.timedelta,
        annotations: Annotations, labels: Labels, body: Body, meta: Meta, spec: Spec, status: Status,
        resource: Resource, uid: str, name: str, namespace: str | None, patch: Patch, logger: Logger,
        memo: Any, api: Any, conditions: Any, reason: str, diff: Diff, old: BodyEssence | Any | None,
        new: BodyEssence | Any | None, param: Any = ..., **kwargs: Any,
    ) -> Result: ...  # fmt: skip


class WebhookFn(Protocol):
    """A handler of admission requests."""

    def __call__(
        self, *, dryrun: bool, warnings: list[str], subresource: str | None, userinfo: UserInfo,
        sslpeer: SSLPeer, headers: Headers, labels: Labels, annotations: Annotations, body: Body, meta: Meta,
        spec: Spec, status: Status, resource: Resource, uid: str, name: str,
        namespace: str | None, patch: Patch, logger: Logger, memo: Any, api: Any, param: Any = ...,
        **kwargs: Any,
    ) -> SyncOrAsync[None]: ...  # fmt: skip


class DaemonFn(Protocol):
    """A daemon."""

    def __call__(
        self, *, stopped: DaemonStopped, retry: int, started: datetime.datetime, runtime: datetime.timedelta,
        annotations: Annotations, labels: Labels, body: Body, meta: Meta, spec: Spec, status: Status,
        resource: Resource, uid: str, name: str, namespace: str | None, patch: Patch,
        logger: Logger, memo: Any, api: Any, conditions: Any, param: Any = ..., **kwargs: Any,
    ) -> Result: ...  # fmt: skip


class TimerFn(Protocol):
    """A timer."""

    def __call__(
        self, *, annotations: Annotations, labels: Labels, body: Body, meta: Meta, spec: Spec, status: Status,
        resource: Resource, uid: str, name: str, namespace: str | None, patch: Patch,
        logger: Logger, memo: Any, api: Any, conditions: Any, param: Any = ..., **kwargs: Any,
    ) -> Result: ...  # fmt: skip


class DelayFn(Protocol):
    """A function that returns the initial delay of a daemon or a timer (seconds)."""

    def __call__(
        self, *, annotations: Annotations, labels: Labels, body: Body, meta: Meta, spec: Spec, status: Status,
        resource: Resource, uid: str, name: str, namespace: str | None, patch: Patch,
        logger: Logger, memo: Any, param: Any = ..., **kwargs: Any,
    ) -> float: ...  # fmt: skip


class WhenFilterFn(Protocol):
    """A filter by anything."""

    def __call__(
        self, *, type: str, event: RawEvent, annotations: Annotations, labels: Labels, body: Body, meta: Meta,
        spec: Spec, status: Status, resource: Resource, uid: str, name: str,
        namespace: str | None, patch: Patch, logger: Logger, memo: Any, diff: Diff,
        old: BodyEssence | Any | None, new: BodyEssence | Any | None, param: Any = ..., **kwargs: Any,
    ) -> bool: ...  # fmt: skip


class MetaFilterFn(Protocol):
    """A filter by one value: of a label, of an annotation, of a field."""

    def __call__(
        self, value: Any, *, type: str, annotations: Annotations, labels: Labels, body: Body, meta: Meta,
        spec: Spec, status: Status, resource: Resource, uid: str, name: str,
        namespace: str | None, patch: Patch, logger: Logger, memo: Any, param: Any = ..., **kwargs: Any,
    ) -> bool: ...  # fmt: skip


# Decorated functions keep their own types: they can be called as they are written, as in tests.
ActivityF = TypeVar("ActivityF", bound=ActivityFn)
IndexingF = TypeVar("IndexingF", bound=IndexingFn)
WatchingF = TypeVar("WatchingF", bound=WatchingFn)
ChangingF = TypeVar("ChangingF", bound=ChangingFn)
WebhookF = TypeVar("WebhookF", bound=WebhookFn)
DaemonF = TypeVar("DaemonF", bound=DaemonFn)
TimerF = TypeVar("TimerF", bound=TimerFn)


class ActivityDecorator(Protocol):
    """A decorator that returns the handler of an activity as it is."""

    def __call__(self, fn: ActivityF, /) -> ActivityF: ...


class IndexingDecorator(Protocol):
    """A decorator that returns the handler of indexing as it is."""

    def __call__(self, fn: IndexingF, /) -> IndexingF: ...


class WatchingDecorator(Protocol):
    """A decorator that returns the handler of events as it is."""

    def __call__(self, fn: WatchingF, /) -> WatchingF: ...


class ChangingDecorator(Protocol):
    """A decorator that returns the handler of changes as it is."""

    def __call__(self, fn: ChangingF, /) -> ChangingF: ...


class WebhookDecorator(Protocol):
    """A decorator that returns the handler of admission requests as it is."""

    def __call__(self, fn: WebhookF, /) -> WebhookF: ...


class DaemonDecorator(Protocol):
    """A decorator that returns the daemon as it is."""

    def __call__(self, fn: DaemonF, /) -> DaemonF: ...


class TimerDecorator(Protocol):
    """A decorator that returns the timer as it is."""

    def __call__(self, fn: TimerF, /) -> TimerF: ...
