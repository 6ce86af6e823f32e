"""Public functions that run an operator."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import warnings
from collections.abc import Callable, Collection, Coroutine
from typing import Any, ParamSpec, TypeVar

from kopf._intents import lifecycles
from kopf._intents.lifecycles import LifeCycleFn
from kopf._intents.registries import OperatorRegistry
from kopf._intents.selectors import NamespacePattern
from kopf._intents.settings import OperatorSettings
from kopf._objects.indices import Indexers
from kopf._objects.memos import AnyMemo, Memo
from kopf._runtime.bridge import PeeringWritten, __version__
from kopf._runtime.default_registry import get_default_registry
from kopf._runtime.identity import detect_own_id
from kopf._runtime.running import Inspection, OperatorRunner, PeeringCommand
from kopf._runtime.stop_flags import Flag
from kopf._runtime.supervision import Task, cancel_remaining
from kopf._runtime.supervision import run_tasks as run_tasks

logger = logging.getLogger("kopf._core.reactor.running")

Args = ParamSpec("Args")
Result = TypeVar("Result")


async def spawn_tasks(
    *,
    lifecycle: LifeCycleFn | None = None,
    indexers: Any = None,
    registry: OperatorRegistry | None = None,
    settings: OperatorSettings | None = None,
    memories: Any = None,
    insights: Any = None,
    identity: str | None = None,
    standalone: bool | None = None,
    priority: int | None = None,
    peering_name: str | None = None,
    liveness_endpoint: str | None = None,
    status_address: str | None = None,
    leader_elect: bool | None = None,
    lease_name: str | None = None,
    lease_namespace: str | None = None,
    clusterwide: bool = False,
    namespaces: Collection[NamespacePattern] = (),
    namespace: NamespacePattern | None = None,
    stop_flag: Flag | None = None,
    ready_flag: Flag | None = None,
    vault: Any = None,
    memo: AnyMemo | None = None,
    _command: Coroutine[None, None, None] | None = None,
) -> Collection[Task]:
    """Start an operator in the current event loop; its tasks are to be passed to `run_tasks`.

    Args:
        lifecycle: Which of the due change handlers are called next; by default, the default lifecycle.
        indexers: For tests of Kopf itself: the storage of indices; by default, a new one.
        registry: The handlers; by default, those of the default registry.
        settings: The settings, which startup handlers can change; by default, new ones.
        memories: Accepted for compatibility, without effect.
        insights: Accepted for compatibility, without effect.
        identity: The identity in the peering; by default, a generated one.
        standalone: Whether to ignore peering; None: by `settings.peering.standalone`.
        priority: The priority in the peering: the operator with the highest one works; None: by the settings.
        peering_name: The name of the peering, which must exist; None: by the settings.
        liveness_endpoint: The URL at which to serve health checks, such as `http://0.0.0.0:8080/healthz`;
            None: none.
        status_address: The host and the port of the status endpoints, such as `0.0.0.0:8082`; None: by
            `settings.health.address`.
        leader_elect: Whether to elect a leader among the replicas; None: by `settings.leadership.enabled`.
        lease_name: The name of the Lease that all replicas share; None: by `settings.leadership.name`.
        lease_namespace: The namespace of the Lease; None: by `settings.leadership.namespace`.
        clusterwide: Whether to serve the whole cluster.
        namespaces: The namespaces to serve: names or patterns, such as `team-*`.
        namespace: Deprecated: one namespace of `namespaces`.
        stop_flag: A flag that stops the operator when it is set: an event or a future of threading or
            asyncio.
        ready_flag: A flag that the operator sets after its startup handlers: an event or a future.
        vault: Credentials by any keys, used instead of a login: a mapping, which can be filled later.
        memo: The memo of the operator, of which objects get copies; by default, an empty `kopf.Memo`.

    Raises:
        TypeError: `namespaces` are combined with `namespace`, or with `clusterwide`.
    """
    return _make_runner(**locals(), peering_command=None).spawn()


def _with_arguments_of(
    template: Callable[Args, Any],
) -> Callable[[Callable[..., Result]], Callable[Args, Result]]:
    """Let the function accept and show the arguments of the template."""

    def decorate(fn: Callable[..., Result]) -> Callable[Args, Result]:
        signature = inspect.signature(template)
        fn.__signature__ = signature.replace(return_annotation="None")  # type: ignore[attr-defined]
        return fn

    return decorate


@_with_arguments_of(spawn_tasks)
async def operator(**kwargs: Any) -> None:
    """Run an operator in the current event loop until it is stopped.

    Args:
        **kwargs: The arguments of `kopf.spawn_tasks`.

    Raises:
        TypeError: `namespaces` are combined with `namespace`, or with `clusterwide`.
    """
    existing_tasks = asyncio.all_tasks()
    tasks = await spawn_tasks(**kwargs)
    await run_tasks(tasks, ignored=existing_tasks)


def run(
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    lifecycle: LifeCycleFn | None = None,
    indexers: Any = None,
    registry: OperatorRegistry | None = None,
    settings: OperatorSettings | None = None,
    memories: Any = None,
    insights: Any = None,
    identity: str | None = None,
    standalone: bool | None = None,
    priority: int | None = None,
    peering_name: str | None = None,
    liveness_endpoint: str | None = None,
    status_address: str | None = None,
    leader_elect: bool | None = None,
    lease_name: str | None = None,
    lease_namespace: str | None = None,
    clusterwide: bool = False,
    namespaces: Collection[NamespacePattern] = (),
    namespace: NamespacePattern | None = None,
    stop_flag: Flag | None = None,
    ready_flag: Flag | None = None,
    vault: Any = None,
    memo: AnyMemo | None = None,
    _command: Coroutine[None, None, None] | None = None,
) -> None:
    """Run an operator until it is stopped: in the given event loop, or in a new one.

    Args:
        loop: The event loop, which must not run; by default, a new one.
        lifecycle: Which of the due change handlers are called next; by default, the default lifecycle.
        indexers: For tests of Kopf itself: the storage of indices; by default, a new one.
        registry: The handlers; by default, those of the default registry.
        settings: The settings, which startup handlers can change; by default, new ones.
        memories: Accepted for compatibility, without effect.
        insights: Accepted for compatibility, without effect.
        identity: The identity in the peering; by default, a generated one.
        standalone: Whether to ignore peering; None: by `settings.peering.standalone`.
        priority: The priority in the peering: the operator with the highest one works; None: by the settings.
        peering_name: The name of the peering, which must exist; None: by the settings.
        liveness_endpoint: The URL at which to serve health checks, such as `http://0.0.0.0:8080/healthz`;
            None: none.
        status_address: The host and the port of the status endpoints, such as `0.0.0.0:8082`; None: by
            `settings.health.address`.
        leader_elect: Whether to elect a leader among the replicas; None: by `settings.leadership.enabled`.
        lease_name: The name of the Lease that all replicas share; None: by `settings.leadership.name`.
        lease_namespace: The namespace of the Lease; None: by `settings.leadership.namespace`.
        clusterwide: Whether to serve the whole cluster.
        namespaces: The namespaces to serve: names or patterns, such as `team-*`.
        namespace: Deprecated: one namespace of `namespaces`.
        stop_flag: A flag that stops the operator when it is set: an event or a future of threading or
            asyncio.
        ready_flag: A flag that the operator sets after its startup handlers: an event or a future.
        vault: Credentials by any keys, used instead of a login: a mapping, which can be filled later.
        memo: The memo of the operator, of which objects get copies; by default, an empty `kopf.Memo`.

    Raises:
        TypeError: `namespaces` are combined with `namespace`, or with `clusterwide`.
    """
    kwargs = {key: value for key, value in locals().items() if key != "loop"}
    with contextlib.suppress(asyncio.CancelledError):
        if loop is not None:
            _run_in(loop, operator(**kwargs))
        else:
            asyncio.run(operator(**kwargs))


def _run_in(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> None:
    existing_tasks = asyncio.all_tasks(loop)
    task = loop.create_task(coroutine)
    try:
        loop.run_until_complete(task)
    finally:
        # If a handler exits, or the loop is stopped, the operator must not continue in other threads.
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
            # An operator that was stopping already has left its tasks.
            loop.run_until_complete(cancel_remaining([], existing_tasks))


async def run_peering_command(peering_command: PeeringCommand, **kwargs: Any) -> list[PeeringWritten]:
    """Let an operator do one thing instead of working, with the same arguments as of `spawn_tasks`.

    Returns the peering objects that it has written.
    """
    existing_tasks = asyncio.all_tasks()
    defaults = inspect.signature(spawn_tasks).parameters.values()
    runner = _make_runner(
        **{**{arg.name: arg.default for arg in defaults}, **kwargs}, peering_command=peering_command
    )
    await run_tasks(runner.spawn(), ignored=existing_tasks)
    return runner.written_peerings


async def run_inspection(inspection: Inspection, **kwargs: Any) -> None:
    """Let an operator call only its startup, login and cleanup handlers, with the inspection in between."""
    existing_tasks = asyncio.all_tasks()
    defaults = inspect.signature(spawn_tasks).parameters.values()
    runner = _make_runner(
        **{**{arg.name: arg.default for arg in defaults}, **kwargs},
        peering_command=None,
        inspection=inspection,
    )
    await run_tasks(runner.spawn(), ignored=existing_tasks)


def _make_runner(
    *,
    lifecycle: LifeCycleFn | None,
    indexers: Any,
    registry: OperatorRegistry | None,
    settings: OperatorSettings | None,
    memories: Any,
    insights: Any,
    identity: str | None,
    standalone: bool | None,
    priority: int | None,
    peering_name: str | None,
    liveness_endpoint: str | None,
    status_address: str | None,
    leader_elect: bool | None,
    lease_name: str | None,
    lease_namespace: str | None,
    clusterwide: bool,
    namespaces: Collection[NamespacePattern],
    namespace: NamespacePattern | None,
    stop_flag: Flag | None,
    ready_flag: Flag | None,
    vault: Any,
    memo: AnyMemo | None,
    _command: Coroutine[None, None, None] | None,
    peering_command: PeeringCommand | None,
    inspection: Inspection | None = None,
) -> OperatorRunner:
    scope = _scope(namespaces=namespaces, namespace=namespace, clusterwide=clusterwide)
    logger.debug(f"Starting Kopf {__version__}.")
    settings = settings if settings is not None else OperatorSettings()
    registry = registry if registry is not None else get_default_registry()
    settings.peering.clusterwide = not scope
    if peering_name is not None:
        settings.peering.name = peering_name
        settings.peering.mandatory = True
    if standalone is not None:
        settings.peering.standalone = standalone
    if priority is not None:
        settings.peering.priority = priority
    if leader_elect is not None:
        settings.leadership.enabled = settings.leadership.dev = leader_elect
    if lease_name is not None:
        settings.leadership.name = lease_name
    if lease_namespace is not None:
        settings.leadership.namespace = lease_namespace
    return OperatorRunner(
        registry=registry,
        settings=settings,
        lifecycle=lifecycle if lifecycle is not None else lifecycles.get_default_lifecycle(),
        identity=identity if identity is not None else detect_own_id(manual=False),
        namespaces=scope,
        memo=memo if memo is not None else Memo(),
        indexers=indexers if indexers is not None else Indexers(),
        stop_flag=stop_flag,
        ready_flag=ready_flag,
        command=_command,
        liveness_endpoint=liveness_endpoint,
        status_address=status_address,
        vault=vault,
        peering_command=peering_command,
        inspection=inspection,
    )


def _scope(
    *,
    namespaces: Collection[NamespacePattern],
    namespace: NamespacePattern | None,
    clusterwide: bool,
) -> list[NamespacePattern]:
    if namespaces and namespace:
        raise TypeError("Either namespaces= or namespace= can be passed. Got both.")
    if namespace:
        text = "namespace= is deprecated; use namespaces=[...]"
        warnings.warn(text, DeprecationWarning, stacklevel=_user_stacklevel())
        namespaces = [namespace]
    if clusterwide and namespaces:
        raise TypeError("The operator can be either cluster-wide or namespaced, not both.")
    if not clusterwide and not namespaces:
        warnings.warn(
            "Absence of either namespaces or cluster-wide flag will become an error soon."
            " For now, switching to the cluster-wide mode for backward compatibility.",
            FutureWarning,
            stacklevel=_user_stacklevel(),
        )
    return list(namespaces)


def _user_stacklevel() -> int:
    """The `stacklevel` of warnings by which the caller of this function points to the user's code.

    How many frames of Kopf and of asyncio are in between depends on how the operator is started.
    """
    frame = inspect.currentframe()
    frame, level = frame.f_back if frame is not None else None, 1
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("kopf", "asyncio"):
            return level
        frame, level = frame.f_back, level + 1
    return 1
