"""Waiting with the client of the operator whose handler is running."""

from __future__ import annotations

from typing import Any

from kopf._objects.bodies import Body
from kopf._runtime.client.operations import Kind
from kopf._runtime.client.waiting import Condition
from kopf._runtime.context import cause_var, subinvoker_var


async def wait_for(
    kind: Kind,
    name: str,
    condition: Condition,
    namespace: str | None = None,
    *,
    timeout: float | None,
    uid: str | None = None,
) -> Body | None:
    """Wait until the condition holds for the object; the same as `Api.wait_for` of the current operator.

    Raises `RuntimeError` if it is not called by a handler of an object.

    Args:
        kind: A name as in decorators, a name such as `apps/v1/deployments`, a `kopf.Resource`, or an object.
        name: The name of the object.
        condition: A function of the body, or of None if there is none; `kopf.client` has usual ones.
        namespace: The namespace; by default, that of the handled object.
        timeout: The timeout in seconds; None: no timeout.
        uid: The uid of the object; another object of this name counts as none.

    Raises:
        TimeoutError: The condition does not hold in time.
    """
    invoker = subinvoker_var.get(None)
    cause = cause_var.get(None)
    if invoker is None or invoker.api is None:
        raise RuntimeError("kopf.wait_for() needs an operator: call it in a handler, or use kopf.connect().")
    body = getattr(cause, "body", None)
    arguments: dict[str, Any] = {} if body is None else {"namespace": body.metadata.namespace}
    api = await invoker.api.provide(arguments, is_async=True)
    found: Body | None = await api.wait_for(kind, name, condition, namespace, timeout=timeout, uid=uid)
    return found
