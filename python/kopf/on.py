"""Decorators that declare handlers: `@kopf.on.create(...)` and the others.

The module is cheap to import: the implementation is loaded at the first use. Each function must be called to
get the decorator; the decorator registers the function and returns it unchanged.

Resources are selected by up to three positional arguments, or by names: `@kopf.on.create('kopfexamples')`,
`@kopf.on.create('kopf.dev', 'v1', 'kopfexamples')`, `@kopf.on.create(kopf.EVERYTHING)`. Wrong declarations
raise `TypeError` or `ValueError` at the declaration.

The options below are the same for all decorators that have them. Other options are described there.

Resource options:
    arg1 (str | Marker | Callable): The first of up to three positional arguments: a group, a version, a name.
    arg2 (str | Marker): The second positional argument.
    arg3 (str | Marker): The third positional argument.
    group (str): The API group of the resource.
    version (str): The API version; by default, the preferred one of the group.
    kind (str): The kind, such as `Pod`.
    plural (str): The plural name, such as `pods`.
    singular (str): The singular name, such as `pod`.
    shortcut (str): A short name, such as `po`.
    category (str): All resources of this category, such as `all`.

Handler options:
    id (str): The handler id, for logs, progress and results; by default, the name of the function.
    param (Any): Any value, passed to the handler as `param`.
    errors (ErrorsMode): How to treat unexpected exceptions; by default, `kopf.ErrorsMode.TEMPORARY`, but
        `IGNORED` for indices.
    timeout (float): The seconds since the first attempt after which the handler fails permanently; by
        default, no limit.
    retries (int): The maximum number of attempts; by default, no limit.
    backoff (float): The seconds before the next attempt after an unexpected exception; by default,
        `settings.execution.default_backoff`. Reconcilers also take a `kopf.Backoff` or a function, and their
        default is `settings.reconciling.backoff`.
    registry (OperatorRegistry): The registry of the handler; by default, the default one.

Filter options:
    labels (Mapping[str, str | MetaFilterToken | Callable]): Labels that the object must have: values,
        callables, `kopf.PRESENT`, `kopf.ABSENT`.
    annotations (Mapping[str, str | MetaFilterToken | Callable]): Annotations that the object must have, in
        the same form.
    when (Callable): A callable with the keyword arguments of the handler, without `param` and those of the
        attempt: whether to call the handler.
    field (str | Sequence[str]): A field, such as `spec.replicas` or a tuple of keys: the handler is limited
        to it.
    value (Any | Callable): The value of the field; in change handlers, the new one or the old one.
    old (Any | Callable): The value of the field before the change.
    new (Any | Callable): The value of the field after the change.
    metadata_only (bool): Whether the handler needs only the metadata of objects.

Admission options:
    operations (Collection[str]): The operations to review, such as `CREATE`; by default, all.
    operation (str): Deprecated: one operation of `operations`.
    subresource (str): The subresource to review, such as `status`; `*` for all; by default, only the object.
    persistent (bool): Whether to keep the webhook in the configuration when the operator exits.
    side_effects (bool): Whether the handler has side effects, except for dry runs.
    ignore_failures (bool): Whether the API server accepts the object if it cannot reach the operator.

Background options:
    initial_delay (float | Callable): The seconds before the first call: a number, or a callable with the
        keyword arguments of the handler.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any, Literal, TypeVar

    from kopf._intents.callbacks import ActivityDecorator as ActivityDecorator
    from kopf._intents.callbacks import ChangingDecorator as ChangingDecorator
    from kopf._intents.callbacks import (
        ChangingF,
        DelayFn,
        MetaFilterFn,
        WhenFilterFn,
    )
    from kopf._intents.callbacks import DaemonDecorator as DaemonDecorator
    from kopf._intents.callbacks import IndexingDecorator as IndexingDecorator
    from kopf._intents.callbacks import TimerDecorator as TimerDecorator
    from kopf._intents.callbacks import WatchingDecorator as WatchingDecorator
    from kopf._intents.callbacks import WebhookDecorator as WebhookDecorator
    from kopf._intents.errors import ErrorsMode
    from kopf._intents.filters import MetaFilterToken
    from kopf._intents.reconciling import Changed, Owned, Watched
    from kopf._intents.reconciling_settings import Backoff
    from kopf._intents.registries import OperatorRegistry
    from kopf._intents.selectors import Marker, SelectorFn
    from kopf._objects.dicts import FieldSpec
    from kopf._objects.refs import Kind
    from kopf._objects.reviews import Operation

    MetaFilters = Mapping[str, str | MetaFilterToken | MetaFilterFn]
    ValueFilter = Any | MetaFilterToken | MetaFilterFn
    F = TypeVar("F", bound=Callable[..., Any])


if not TYPE_CHECKING:  # type checkers must find those names that do not exist

    def __getattr__(name: str) -> object:
        if name.endswith("Decorator"):
            from kopf._intents import callbacks

            if hasattr(callbacks, name):
                return getattr(callbacks, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    kinds = ["Activity", "Changing", "Daemon", "Indexing", "Timer", "Watching", "Webhook"]
    return sorted([*globals(), *(f"{kind}Decorator" for kind in kinds)])


def _explained(fn: F) -> F:
    """Add hints to the errors about the arguments of a decorator."""

    def explained(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except TypeError as error:
            # Only those of the call itself, and not from within the function.
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            from kopf._intents.decorators import explain_call

            raise explain_call(fn, args, kwargs, error) from None

    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(explained, name, getattr(fn, name))
    explained.__wrapped__ = fn  # type: ignore[attr-defined]
    return explained  # type: ignore[return-value]


def _declaring(decorator_name: str, options: dict[str, Any]) -> Callable[[Any], Any]:
    if callable(options.get("arg1")):
        from kopf._intents.decorators import reject_bare_decorator

        reject_bare_decorator(decorator_name, options)

    def decorator(fn: Callable[..., Any]) -> Callable[..., Any]:
        from kopf._intents.decorators import declare
        from kopf._runtime.default_registry import get_default_registry

        registry = options["registry"] if options["registry"] is not None else get_default_registry()
        declare(decorator_name, fn, options, registry)
        return fn

    return decorator


@_explained
def startup(
    *,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    registry: OperatorRegistry | None = None,
) -> ActivityDecorator:
    """Call the function when the operator starts, before anything else; if it fails, the operator exits."""
    return _declaring("startup", locals())


@_explained
def cleanup(
    *,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    registry: OperatorRegistry | None = None,
) -> ActivityDecorator:
    """Call the function at the end of the operator, after everything else."""
    return _declaring("cleanup", locals())


@_explained
def login(
    *,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    registry: OperatorRegistry | None = None,
) -> ActivityDecorator:
    """Call the function to get credentials: a `ConnectionInfo`, or None if it has none."""
    return _declaring("login", locals())


@_explained
def probe(
    *,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    registry: OperatorRegistry | None = None,
) -> ActivityDecorator:
    """Call the function when the liveness is checked, and put its result to the response."""
    return _declaring("probe", locals())


@_explained
def validate(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    operation: Operation | None = None,
    operations: Collection[Operation] | None = None,
    subresource: str | None = None,
    persistent: bool | None = None,
    side_effects: bool | None = None,
    ignore_failures: bool | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    registry: OperatorRegistry | None = None,
) -> WebhookDecorator:
    """Call the function to validate an object on its way to the cluster; `AdmissionError` denies it."""
    return _declaring("validate", locals())


@_explained
def mutate(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    operation: Operation | None = None,
    operations: Collection[Operation] | None = None,
    subresource: str | None = None,
    persistent: bool | None = None,
    side_effects: bool | None = None,
    ignore_failures: bool | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    registry: OperatorRegistry | None = None,
) -> WebhookDecorator:
    """Call the function to change an object on its way to the cluster, by the `patch`."""
    return _declaring("mutate", locals())


@_explained
def resume(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    deleted: bool | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    registry: OperatorRegistry | None = None,
) -> ChangingDecorator:
    """Call the function for each object that is there when the operator starts.

    Args:
        deleted: Whether to call the handler for objects that are marked for deletion, too.
    """
    return _declaring("resume", locals())


@_explained
def create(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    registry: OperatorRegistry | None = None,
) -> ChangingDecorator:
    """Call the function when an object is created."""
    return _declaring("create", locals())


@_explained
def update(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    old: ValueFilter | None = None,
    new: ValueFilter | None = None,
    registry: OperatorRegistry | None = None,
) -> ChangingDecorator:
    """Call the function when an object, or its field, has changed."""
    return _declaring("update", locals())


@_explained
def delete(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    optional: bool | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    registry: OperatorRegistry | None = None,
) -> ChangingDecorator:
    """Call the function when an object is being deleted; the deletion waits for it, unless it is optional.

    Args:
        optional: Whether to add no finalizer: Kopf calls the handler only if other handlers, daemons or
            timers of the operator have added it.
    """
    return _declaring("delete", locals())


@_explained
def field(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec,
    value: ValueFilter | None = None,
    old: ValueFilter | None = None,
    new: ValueFilter | None = None,
    registry: OperatorRegistry | None = None,
) -> ChangingDecorator:
    """Call the function when a field has changed in any way, including its appearance and disappearance."""
    return _declaring("field", locals())


@_explained
def index(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    metadata_only: bool = False,
    registry: OperatorRegistry | None = None,
) -> IndexingDecorator:
    """Put what the function returns to the in-memory index of the same name."""
    return _declaring("index", locals())


@_explained
def event(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    metadata_only: bool = False,
    registry: OperatorRegistry | None = None,
) -> WatchingDecorator:
    """Call the function for each watch event, with no retries and no memory of what was handled."""
    return _declaring("event", locals())


@_explained
def daemon(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    initial_delay: float | DelayFn | None = None,
    cancellation_backoff: float | None = None,
    cancellation_timeout: float | None = None,
    cancellation_polling: float | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    metadata_only: bool = False,
    registry: OperatorRegistry | None = None,
) -> DaemonDecorator:
    """Run the function in background for as long as the object exists and matches.

    Args:
        cancellation_backoff: The seconds from the flag `stopped` to the cancellation; by default, none.
        cancellation_timeout: The seconds from the cancellation until Kopf abandons the daemon; by default,
            Kopf does not cancel it, and waits.
        cancellation_polling: The seconds between two checks whether the daemon has stopped; by default,
            `settings.background.cancellation_polling`.
    """
    return _declaring("daemon", locals())


@_explained
def timer(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    interval: float | None = None,
    initial_delay: float | DelayFn | None = None,
    sharp: bool | None = None,
    idle: float | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    metadata_only: bool = False,
    registry: OperatorRegistry | None = None,
) -> TimerDecorator:
    """Call the function again and again for as long as the object exists and matches.

    Args:
        interval: The seconds between two calls; by default, there is one call, or with
            `idle`, one after each change.
        sharp: Whether the interval is between the starts of two calls, not from the end to the start.
        idle: The seconds without a change of the object before the timer is called.
    """
    return _declaring("timer", locals())


@_explained
def reconcile(
    arg1: str | Marker | SelectorFn | None = None,
    arg2: str | Marker | None = None,
    arg3: str | Marker | None = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any | None = None,
    owns: Collection[Kind | Owned] | None = None,
    watches: Collection[Watched] | None = None,
    changed: Changed | Collection[Changed] | None = None,
    initial: bool | Literal["unobserved"] | None = None,
    deletion: bool | None = None,
    finalizer: str | None = None,
    debounce: float | None = None,
    debounce_limit: float | None = None,
    min_interval: float | None = None,
    resync: float | None = None,
    concurrency: int | None = None,
    reconcile_timeout: float | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | Backoff | Callable[..., float] | None = None,
    condition: str | None = None,
    observe: bool | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    registry: OperatorRegistry | None = None,
) -> Callable[[F], F]:
    """Call the function to bring the cluster in line with the object, whenever something relevant changes.

    Args:
        owns: The kinds of owned objects: names, or `kopf.owned()`.
        watches: The kinds of other objects that affect the object: `kopf.watch()`.
        changed: What counts as a change of the object: words, paths, functions; by default, `essence`.
        initial: Which objects of the first list are reconciled: all, none (`False`), or `unobserved` ones.
        deletion: Whether to call the function for objects that are marked for deletion, too, and hold these.
        finalizer: The name of a separate finalizer; by default, that of the operator.
        debounce: The seconds in which changes are merged into one call; by default,
            `settings.reconciling.debounce`.
        debounce_limit: The longest time from the first change to the call, in seconds; by default, ten times
            `debounce`.
        min_interval: The shortest time between the starts of two calls, in seconds; by default, none.
        resync: The seconds after a success after which the function is called again; by default,
            `settings.reconciling.resync`.
        concurrency: How many objects are reconciled at the same time; by default,
            `settings.reconciling.concurrency`.
        reconcile_timeout: The timeout of one call in seconds; by default,
            `settings.reconciling.reconcile_timeout`.
        condition: The type of a status condition that shows the result of the last call.
        observe: Whether to set `status.observedGeneration` after each call that has returned.
    """
    return _declaring("reconcile", locals())


@_explained
def subhandler(
    *,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
    field: FieldSpec = None,
    value: ValueFilter | None = None,
    old: ValueFilter | None = None,
    new: ValueFilter | None = None,
) -> ChangingDecorator:
    """Declare a sub-handler of the handler that is being called now, with its own progress and retries.

    Raises:
        LookupError: It is called outside of handlers.
        TypeError: The handler is not a change handler.
    """
    options = locals()

    def decorator(fn: ChangingF, /) -> ChangingF:
        from kopf._runtime.subhandlers import declare

        declare(fn, options)
        return fn

    return decorator


def register(
    fn: ChangingF,
    *,
    id: str | None = None,
    param: Any | None = None,
    errors: ErrorsMode | None = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | None = None,
    labels: MetaFilters | None = None,
    annotations: MetaFilters | None = None,
    when: WhenFilterFn | None = None,
) -> ChangingF:
    """Declare the function as a sub-handler, the same as `subhandler` does.

    Args:
        fn: The function to declare.
    """
    decorator = subhandler(
        id=id,
        param=param,
        errors=errors,
        timeout=timeout,
        retries=retries,
        backoff=backoff,
        labels=labels,
        annotations=annotations,
        when=when,
    )
    return decorator(fn)
