"""Leadership in handlers: the term of each call, and the check before each call.

Operators without leader election do not load this module, unless their authors use its public names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from kopf._intents.errors import LeadershipLost
from kopf._intents.handlers import (
    ChangingHandler,
    Handler,
    ReconcilingHandler,
    SpawningHandler,
    WatchingHandler,
)
from kopf._runtime import bridge
from kopf._runtime.context import leadership_var

LEADERS_ONLY = (WatchingHandler, ChangingHandler, SpawningHandler, ReconcilingHandler)
"""The handlers that only the leader calls; the others are called in every replica."""


class Leadership:
    """One term of this replica as the leader, for effects outside of the cluster.

    It does not change: a later term is another one. It may be used in any thread, also after the end of the
    term.
    """

    __slots__ = ("_term",)

    def __init__(self, term: bridge.Term) -> None:
        super().__init__()
        self._term = term

    @property
    def name(self) -> str:
        """The name of the Lease."""
        return self._term.name

    @property
    def namespace(self) -> str:
        """The namespace of the Lease."""
        return self._term.namespace

    @property
    def identity(self) -> str:
        """The identity of this process, which is the holder in the Lease."""
        return self._term.identity

    @property
    def term(self) -> int:
        """The number of the term. Later terms of the Lease have higher numbers: a store that rejects lower
        numbers than it has seen is safe from former leaders.
        """
        return self._term.number

    @property
    def expires_in(self) -> float:
        """The seconds until the term ends if the Lease is not renewed; 0 if it has ended."""
        return self._term.expires_in() or 0.0

    def check(self) -> None:
        """Check that the term lasts.

        Raises:
            LeadershipLost: The term has ended.
        """
        if self._term.expires_in() is None:
            raise LeadershipLost(f"The term {self.term} by the lease {self.namespace}/{self.name} has ended.")

    def __repr__(self) -> str:
        return f"<Leadership of {self.identity} by {self.namespace}/{self.name} in term {self.term}>"


def leadership() -> Leadership | None:
    """The term in which the running handler was called.

    Returns:
        The term; None outside of handlers, without leader election, and in handlers that are called while the
        replica does not lead, such as those of indices, admission and startup.
    """
    found: Leadership | None = leadership_var.get(None)
    return found


class Election:
    """The part of an operator in a leader election, as its calls of handlers need it."""

    def __init__(self, election: bridge.Election) -> None:
        super().__init__()
        self._election = election

    def begin_call(self, handler: Handler, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        """Check that the handler may be called, and set its context variable; the function to call.

        A synchronous function is checked again in its thread, for which it may have waited. The process may
        have been stopped for any time since the handler was selected.

        Raises:
            LeadershipLost: Only the leader calls this handler, and this replica does not lead.
        """
        term = self._election.term()
        leadership_var.set(Leadership(term) if term is not None else None)
        if not isinstance(handler, LEADERS_ONLY):
            return fn
        self._check(handler)
        return fn if is_async else functools.partial(self._call, handler, fn)

    def _call(self, handler: Handler, fn: Callable[..., Any], /, **kwargs: Any) -> Any:
        self._check(handler)
        return fn(**kwargs)

    def _check(self, handler: Handler) -> None:
        if not self._election.admits_call():
            raise LeadershipLost(f"{handler} is not called, as this replica is not the leader any longer.")
