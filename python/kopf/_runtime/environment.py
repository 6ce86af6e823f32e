"""The handlers of one operator, with what all their calls share."""

from __future__ import annotations

from collections.abc import Sequence

from kopf._intents.handlers import ResourceHandler
from kopf._intents.settings import OperatorSettings
from kopf._objects.indices import Indexers
from kopf._runtime.invocation import Invoker, PreparedHandler
from kopf._runtime.memos import MemoRegistry


class HandlerEnvironment:
    """The handlers of one operator by their numbers, and what their calls share.

    Args:
        handlers: The handlers, in the order in which the engine has them.
        settings: The settings of the operator.
        memos: The memos of the objects.
        indexers: The indices.
        invoker: Calls the handlers.
    """

    def __init__(
        self,
        handlers: Sequence[ResourceHandler],
        *,
        settings: OperatorSettings,
        memos: MemoRegistry,
        indexers: Indexers,
        invoker: Invoker,
    ) -> None:
        super().__init__()
        self.handlers = handlers
        self.prepared_handlers = [PreparedHandler(handler) for handler in handlers]
        self.settings = settings
        self.memos = memos
        self.indexers = indexers
        self.indices = indexers.indices
        """The indices as handlers get them."""
        self.invoker = invoker
