"""Features of the embedded API server for tests: virtual time, faults, and the request log."""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kopf._testing.bindings import ApiServer
from kopf._testing.client import USER_AGENT
from kopf._testing.clock import ClockControl
from kopf._testing.durations import Duration, to_seconds

Kind = Literal["embedded", "assets", "kubeconfig"]
Fault = Literal[
    "latency",
    "too-many-requests",
    "code",
    "reset",
    "conflict",
    "gone",
    "silence",
    "stale",
    "lost",
    "cut-off",
]


class NotSupportedError(Exception):
    """This kind of cluster does not support the feature."""

    __module__ = "kopf.testing"


@dataclass(frozen=True)
class Request:
    """A request to the embedded server: of the operator, or of another client."""

    at: float
    """The seconds since the server's start."""
    method: str
    """The HTTP method."""
    path: str
    """The path, without the query."""
    query: str
    """The query, encoded."""
    content_type: str
    """The `Content-Type` header."""
    agent: str
    """The `User-Agent` header."""
    body: bytes
    """The body."""
    code: int
    """The HTTP status; 0 if the connection was reset on request."""
    user: str
    """The user, by the credentials or by impersonation."""
    accept: str
    """The `Accept` header."""

    @property
    def json(self) -> Any:
        """The decoded body; None if there is none."""
        return json.loads(self.body) if self.body else None


Requests = list[Request]


class EmbeddedFeatures:
    """The features of clusters that only the embedded API server has."""

    kind: Kind

    def __init__(self) -> None:
        super().__init__()
        self._server: ApiServer | None = None
        self._clock_control = ClockControl(lambda: self.activity_marker)
        self._checks: list[Callable[[], None]] = []

    def add_check(self, check: Callable[[], None]) -> None:
        """Call the function during all waits of this cluster; an exception of it ends the wait.

        Args:
            check: The function.
        """
        self._checks.append(check)

    def remove_check(self, check: Callable[[], None]) -> None:
        """Do not call the function any more.

        Args:
            check: The function.
        """
        if check in self._checks:
            self._checks.remove(check)

    def _check(self) -> None:
        __tracebackhide__ = True
        for check in list(self._checks):
            check()

    @property
    def _embedded(self) -> ApiServer:
        if self.kind != "embedded":
            raise NotSupportedError(
                f"This needs the embedded API server, but the kind of this cluster is {self.kind!r}."
                " Mark the test with @pytest.mark.kopf_embedded_only."
            )
        if self._server is None:
            raise RuntimeError("The cluster is not running.")
        return self._server

    @property
    def clock(self) -> ClockControl:
        """The control of virtual time."""
        if self.kind != "embedded":
            raise NotSupportedError(
                "Virtual time needs the embedded API server, but the kind of this cluster is"
                f" {self.kind!r}. Mark the test with @pytest.mark.kopf_embedded_only."
            )
        return self._clock_control

    @property
    def now(self) -> datetime.datetime:
        """The current time of the operators and the server."""
        return self.clock.now

    def freeze(self) -> None:
        """Stop time, until `thaw()`: delays, intervals, and back-offs end only when time is advanced."""
        self.clock.freeze()

    def thaw(self) -> None:
        """Let time continue from where it is."""
        self.clock.thaw()

    def advance(self, time: Duration, *, timeout: float = 120) -> None:
        """Advance time by this duration, with everything that happens meanwhile, and wait until idle.

        The duration is seconds, a `datetime.timedelta`, or a text such as `3 days` or `1h 30m`. All
        that becomes due in this time runs, in order. Handlers and requests take real time, of at most
        `timeout` seconds. If time was not frozen, it continues afterwards, ahead of the real time.

        Args:
            time: The duration: seconds, a `datetime.timedelta`, or a text such as `3 days` or `1h 30m`.
            timeout: The timeout of handlers and requests in seconds of real time.
        """
        __tracebackhide__ = True
        self.clock.advance(to_seconds(time), timeout)
        self._check()

    def wait_until_idle(self, *, timeout: float = 30) -> None:
        """Wait until the server and all operators of this process are idle.

        Args:
            timeout: The timeout in seconds.
        """
        __tracebackhide__ = True
        self.clock.wait_until_idle(timeout)
        self._check()

    @property
    def requests(self) -> Requests:
        """The request log of the embedded server, the oldest first, without the requests of this object."""
        return self.requests_since(0)[1]

    def requests_since(self, count: int) -> tuple[int, Requests]:
        """How many requests there have been, and those after the first so many.

        Args:
            count: The number of requests to leave out.
        """
        total, entries = self._embedded.request_log(count)
        return total, [item for item in (Request(*entry) for entry in entries) if item.agent != USER_AGENT]

    async def wait_until(self, predicate: Callable[[], Any], *, timeout: float | None = 30) -> Any:
        """Wait in asynchronous code until the predicate is true, and return its result.

        The predicate is called at once, and after each request that the embedded server has served, such as
        one of the operator. Nothing is polled in between, and no thread waits.

        Args:
            predicate: The function, which is called without arguments.
            timeout: The timeout in seconds; None: no timeout.
        """
        async with asyncio.timeout(timeout):
            while True:
                count = self._embedded.request_count()
                if found := predicate():
                    return found
                await self._embedded.wait_for_request(count)

    def call_all(self, requests: Sequence[tuple[str, str, Any]]) -> None:
        """Make many requests in one step: (method, path, body) each. They are not in the request log.

        If one is rejected, it is an error, and those after it are not made.

        Args:
            requests: The requests: the method, the path, and the body of each.
        """
        self._embedded.call_all(list(requests))

    def clear_requests(self) -> None:
        """Clear the request log."""
        self._embedded.clear_request_log()

    def inject(
        self,
        fault: Fault,
        number: float = 0,
        *,
        verb: str = "",
        resource: str = "",
        client: str = "",
        times: int | None = None,
        after: int = 0,
    ) -> None:
        """Inject a fault into the embedded server: the next `times` times, or until `clear_faults()`.

        The number is seconds for `latency` and `too-many-requests`, the code for `code`, the version for
        `stale`; of `cut-off`, whether (1) or not (0) the request is done. The resource is a plural name;
        `widgets/status` selects only the subresource, and `example.com/v1` the discovery of that API version.
        The first `after` matching requests are served as usual.

        Args:
            fault: The kind of the fault.
            number: The number of the fault: seconds, an HTTP status, or a version; see above.
            verb: Only requests with this verb, such as `patch`; empty: all.
            resource: Only requests for this resource, such as `widgets/status`; empty: all.
            client: Only requests of this client: its user, or a part of its User-Agent; empty: all.
            times: How many requests are affected; None: all, until `clear_faults()`.
            after: How many matching requests are served as usual before.
        """
        self._embedded.inject(
            fault, number, verb=verb, plural=resource, client=client, times=times, after=after
        )

    def disconnect_clients(self) -> None:
        """Disconnect all clients from the embedded server until the faults are cleared: for the server, all
        operators have crashed.
        """
        self._embedded.cut_off()

    @property
    def is_disconnected(self) -> bool:
        """Whether all clients are disconnected, by `disconnect_clients()` or by the fault `cut-off`."""
        return self._embedded.is_cut_off

    def clear_faults(self) -> None:
        """Clear all injected faults."""
        self._embedded.clear_faults()

    def drop_watches(self, resource: str = "") -> None:
        """Close the open watches of a resource, or all.

        Args:
            resource: The plural name of the resource; empty: all resources.
        """
        self._embedded.cut_watches(resource)

    def compact(self) -> None:
        """Compact the history: all earlier resource versions are too old (410) for watches."""
        self._embedded.compact()

    @property
    def version(self) -> int:
        """The newest resource version of the embedded server: it grows with every write."""
        return self._embedded.resource_version

    @property
    def activity_marker(self) -> tuple[int, int]:
        """A value that changes with every write and every request to the embedded server."""
        return self._embedded.resource_version, self._embedded.request_count()
