"""Default registry of the process, with its fallback login handlers."""

from __future__ import annotations

from contextvars import ContextVar

from kopf._intents.errors import ErrorsMode
from kopf._intents.handlers import ActivityHandler, handler_with
from kopf._intents.registries import OperatorRegistry
from kopf._objects.reasons import Activity
from kopf._objects.typedefs import HandlerId
from kopf._runtime import login


class SmartOperatorRegistry(OperatorRegistry):
    """A registry that can log in by itself, by what is there at the moment of its creation.

    The login handlers of the author, if there are any, replace all of these.
    """

    def __init__(self) -> None:
        super().__init__()
        pykube, client, async_client = login.has_pykube(), login.has_sync_client(), login.has_async_client()
        no_libraries = not (pykube or client or async_client)
        fallbacks = {
            login.login_via_pykube: pykube,
            login.login_via_client: client,
            login.login_via_async_client: async_client and not client,
            login.login_with_kubeconfig: no_libraries and login.has_kubeconfig(),
            login.login_with_service_account: no_libraries and login.has_service_account(),
        }
        for fn, usable in fallbacks.items():
            if usable:
                handler = handler_with(
                    ActivityHandler,
                    id=HandlerId(fn.__name__),
                    fn=fn,
                    errors=ErrorsMode.IGNORED,
                    activity=Activity.AUTHENTICATION,
                    _fallback=True,
                )
                self._activities.append(handler)


registry_var: ContextVar[OperatorRegistry] = ContextVar("registry_var")
"""The default registry in the handlers of an operator of a test."""

_default_registry: OperatorRegistry | None = None


def get_default_registry() -> OperatorRegistry:
    """The registry of decorators and operators without an explicit one; created at the first use."""
    global _default_registry
    of_operator = registry_var.get(None)
    if of_operator is not None:
        return of_operator
    if _default_registry is None:
        _default_registry = SmartOperatorRegistry()
    return _default_registry


def set_default_registry(registry: OperatorRegistry) -> None:
    """Replace the default registry, for the whole process.

    Args:
        registry: The registry for decorators and operators without an explicit one.
    """
    global _default_registry
    _default_registry = registry
