"""Caches: their declaration, and what handlers read from them.

The module is imported only by operators with caches.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from kopf._intents.caching import (
    By,
    CacheDeclaration,
    Labels,
    check_id,
    children_caches,
    make_declaration,
    serialize_cache,
    to_label_selector,
)
from kopf._intents.registries import OperatorRegistry, cache_declarations
from kopf._objects.bodies import Body
from kopf._objects.changes import ChangeEvent
from kopf._objects.dicts import FieldSpec, parse_field
from kopf._objects.references import ObjectReference, OwnerReference
from kopf._objects.refs import Ref, ref
from kopf._runtime import bridge
from kopf._runtime.context import cause_var, subinvoker_var
from kopf._runtime.cycle_context import InspectedObject
from kopf._runtime.default_registry import get_default_registry
from kopf._runtime.environment import HandlerEnvironment
from kopf._runtime.errors import ENDING_ERRORS, message_of
from kopf._runtime.loggers import full_name
from kopf._runtime.repeated_failures import RepeatedFailures

logger = logging.getLogger("kopf._core.reactor.caches")


class Readers(dict[str, bridge.CacheReader]):
    """The caches of one running operator, by their ids."""

    registry: OperatorRegistry | None = None  # of the operator, while it is running


_running: weakref.WeakKeyDictionary[OperatorRegistry, list[Readers]] = weakref.WeakKeyDictionary()


class Cache(Collection[Body]):
    """The objects of a kind, as far as they are selected. Reading sends no request, and never waits.

    Each body is a separate view: changes of its dicts and lists stay in it, and it does not change later.
    """

    __module__ = "kopf"

    def __init__(self, declaration: CacheDeclaration, registry: OperatorRegistry) -> None:
        super().__init__()
        self._declaration = declaration
        self._registry = weakref.ref(registry)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._declaration.id!r}>"

    def _reader(self) -> bridge.CacheReader:
        id, registry = self._declaration.id, self._registry()
        # Handlers use the cache of their operator.
        readers: Readers | None = getattr(subinvoker_var.get(None), "caches", None)
        if readers is None or registry is None or readers.registry is not registry:
            readers = self._only_readers(registry)
        reader = readers.get(id)
        if reader is None:
            raise LookupError(f"The cache {id!r} was declared after the start of the operator.")
        return reader

    def _only_readers(self, registry: OperatorRegistry | None) -> Readers:
        running = _running.get(registry, []) if registry is not None else []
        if len(running) != 1:
            some = "several running operators" if running else "no running operator"
            raise LookupError(
                f"The cache {self._declaration.id!r} cannot be read here: its registry has {some}."
            )
        return running[0]

    def get(self, name: str, namespace: str | None = None) -> Body | None:
        """The object of this name; None if there is none.

        Without a namespace, it is that of the handled object. If there is none, and several namespaces have
        an object of the name, it raises `LookupError`.

        Args:
            name: The name of the object.
            namespace: The namespace; by default, that of the handled object.
        """
        reader = self._reader()
        if namespace is not None:
            found = reader.get(name, namespace)
            return None if found is None else Body(found)
        handled = getattr(cause_var.get(None), "body", None)
        own = handled.metadata.namespace if handled is not None else None
        if own is not None and reader.namespaced:
            found = reader.get(name, own)
            return None if found is None else Body(found)
        named = reader.named(name)
        if len(named) > 1:
            namespaces = ", ".join(repr(one.namespace) for one in named)
            raise LookupError(f"Several namespaces have an object {name!r}: {namespaces}. Pass namespace=...")
        return Body(named[0]) if named else None

    def find(self, reference: Ref | ObjectReference | OwnerReference | Mapping[str, Any], /) -> Body | None:
        """The object of a reference; None if there is none, or if it has another uid.

        Args:
            reference: A reference, or the body of an object.
        """
        target = reference if isinstance(reference, Ref) else ref(cast(Mapping[str, Any], reference))
        found = self.get(target.name, target.namespace)
        is_other = found is not None and target.uid is not None and found.metadata.uid != target.uid
        return None if is_other else found

    def select(
        self,
        *,
        namespace: str | None = None,
        labels: Labels | str | None = None,
        fields: Mapping[str, Any] | None = None,
        owner: Body | Ref | Mapping[str, Any] | str | None = None,
        **by: Any,
    ) -> list[Body]:
        """The objects that match all arguments, ordered by namespace and name.

        `labels` are values, lists of values, `kopf.PRESENT`, `kopf.ABSENT`, or a selector; `fields` are paths
        and values; `owner` is a body or a uid; `by` are the declared keys.

        Args:
            namespace: The namespace; by default, all that are kept.
            labels: Values, lists of values, `kopf.PRESENT`, `kopf.ABSENT`, or a selector.
            fields: Paths and values.
            owner: The owner: a body, a reference, or a uid.
            **by: Values of the declared keys.
        """
        found = self._reader().select(
            namespace,
            None if labels is None else to_label_selector(labels),
            [(list(parse_field(path)), value) for path, value in (fields or {}).items()],
            _uid_of(owner),
            list(by.items()),
        )
        return [Body(one) for one in found]

    def keys(self, by: str, /) -> list[Any]:
        """The present values of a declared key.

        Args:
            by: The name of the declared key.
        """
        return self._reader().keys(by)

    def __iter__(self) -> Iterator[Body]:
        return iter(self.select())

    def __len__(self) -> int:
        return len(self._reader())

    # An empty cache is one, too.
    def __bool__(self) -> bool:
        return True

    def __contains__(self, item: object) -> bool:
        if isinstance(item, Ref):
            return self.find(item) is not None
        if not isinstance(item, Mapping):
            return False
        metadata = item.get("metadata") or {}
        name = metadata.get("name")
        if not isinstance(name, str):
            return False
        found = self._reader().get(name, metadata.get("namespace"))
        return found is not None and found.uid == metadata.get("uid")

    @property
    def is_ready(self) -> bool:
        """Whether the first list is complete."""
        return self._reader().is_ready

    @property
    def stale_for(self) -> float:
        """For how many seconds the watch has been failing; zero if it is not."""
        return self._reader().stale_for

    @property
    def memory_size(self) -> int:
        """The memory of the objects in bytes."""
        return self._reader().memory_size

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until the first list is complete; `TimeoutError` after the timeout (seconds).

        Args:
            timeout: The timeout in seconds; None: no timeout.
        """
        from kopf._runtime.client.responses import current_responses  # other operators do not load it

        reader = self._reader()
        await current_responses().wait(lambda queue, ticket: reader.start_wait_ready(timeout, queue, ticket))
        self._check_ready(reader.is_ready, timeout)

    def wait_ready(self, timeout: float | None = None) -> None:
        """The same for threads: it blocks.

        Args:
            timeout: The timeout in seconds; None: no timeout.
        """
        self._check_ready(self._reader().wait_ready(timeout), timeout)

    def _check_ready(self, is_ready: bool, timeout: float | None) -> None:
        if not is_ready:
            within = f" within {timeout:g} seconds" if timeout is not None else ": the operator has ended"
            raise TimeoutError(f"The cache {self._declaration.id!r} was not ready{within}.")

    async def changes(self, *, initial: bool = True) -> AsyncIterator[ChangeEvent]:
        """Iterate over the changes: first over the present objects (of the type None), then as they happen.

        A consumer that is far behind gets the newest states, never a gap. It ends with the operator.

        Args:
            initial: Whether to begin with the present objects.
        """
        from kopf._runtime.client.responses import current_responses

        stream = self._reader().changes(initial)
        try:
            while (changes := stream.take()) is not None:
                for kind, object, old in changes:
                    yield ChangeEvent(kind, Body(object), None if old is None else Body(old))
                if not changes:
                    await current_responses().wait(stream.start_wait)
        finally:
            stream.close()


def _uid_of(owner: Any) -> str | None:
    if owner is None or isinstance(owner, str):
        return owner
    uid = owner.uid if isinstance(owner, Ref) else (owner.get("metadata") or owner).get("uid")
    if not isinstance(uid, str):
        raise ValueError(f"owner= needs the uid of the owner. Got {owner!r}.")
    return uid


def cache(
    arg1: Any,
    arg2: Any = None,
    arg3: Any = None,
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
    labels: Labels | str | None = None,
    fields: Mapping[str, str] | None = None,
    namespaces: Literal["*"] | Collection[str] | None = None,
    by: By | None = None,
    metadata_only: bool | None = None,
    drop: Collection[FieldSpec] | None = None,
    optional: bool = False,
    registry: OperatorRegistry | None = None,
) -> Cache:
    """Declare a cache: the objects of a kind are held by the operator, and are read without requests.

    Handlers get it as an argument by its id, which is the plural name by default. `labels` and `fields`
    select the objects, `by` declares keys for `select()`: paths, in which `[*]` stands for all items of a
    list, or functions. Unless the cache is `optional`, no handler is called before it is filled.

    Args:
        arg1: Up to three positional arguments select the resource: a group, a version, a name.
        arg2: The second positional argument.
        arg3: The third positional argument.
        group: The API group of the resource.
        version: The API version; by default, the preferred one of the group.
        kind: The kind, such as `Pod`.
        plural: The plural name, such as `pods`.
        singular: The singular name, such as `pod`.
        shortcut: A short name, such as `po`.
        category: A category of resources, such as `all`.
        id: The name of the argument of handlers; by default, the plural name.
        labels: The labels of the objects: values, lists of values, `kopf.PRESENT`, `kopf.ABSENT`, or a
            selector.
        fields: The fields of the objects and their values, as the server supports them in field selectors.
        namespaces: The namespaces; `*`: all of them; by default, those of the operator.
        by: The declared keys by their names: paths, in which `[*]` stands for all items of a list, or
            functions.
        metadata_only: Whether to keep only the metadata of objects.
        drop: The fields that are not kept; by default, `settings.caching.drop`.
        optional: Whether handlers are called before the cache is filled.
        registry: The registry of the cache; by default, the default one.
    """
    declaration = make_declaration(locals())
    registry = registry if registry is not None else get_default_registry()
    check_id(registry, declaration)
    declared = Cache(declaration, registry)
    registry._caches[declaration.id] = (declaration, declared)
    return declared


class OperatorCaches:
    """The caches of one operator."""

    def __init__(self, registry: OperatorRegistry, environment: HandlerEnvironment) -> None:
        super().__init__()
        self._registry = registry
        self._environment = environment
        declared, children = cache_declarations(registry), children_caches(environment.handlers)
        self._declarations: Sequence[CacheDeclaration] = [*declared, *children]
        self._first = len(environment.handlers)
        self._failures = RepeatedFailures()
        self.readers = Readers()
        self.children: dict[int, list[bridge.CacheReader]] = {}
        """The caches of children, by the numbers of their reconcilers, in the order of `owns=`."""

    def serialize(self) -> list[dict[str, Any]]:
        """Describe the caches for the engine; their numbers follow those of the handlers."""
        settings = self._environment.settings.caching
        return [serialize_cache(one, settings) for one in self._declarations]

    def attach(self, engine: bridge.Engine) -> None:
        """The operator is running."""
        for number, declaration in enumerate(self._declarations, self._first):
            reader = engine.cache(number)
            if declaration.owner is None:
                self.readers[declaration.id] = reader
            else:
                self.children.setdefault(declaration.owner[0], []).append(reader)
        self.readers.registry = self._registry
        _running.setdefault(self._registry, []).append(self.readers)

    def detach(self) -> None:
        """The operator has ended."""
        self.readers.registry = None
        running = _running.get(self._registry, [])
        running[:] = [readers for readers in running if readers is not self.readers]

    def request_handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """The handlers of the engine's requests, by the types of the requests."""
        return {bridge.ComputeKeys: self._compute_keys}

    def _compute_keys(self, host_task: bridge.ComputeKeys) -> None:
        """Call the functions that compute keys of an object; a failed one computes none."""
        declaration = self._declarations[host_task.cache - self._first]
        inspected = InspectedObject.of(host_task, self._environment)
        kwargs = inspected.spawning_cause().kwargs
        computed: list[tuple[str, list[Any]]] = []
        for name, source in declaration.by.items():
            if callable(source):
                computed.append((name, self._call(host_task, declaration.id, name, source, kwargs)))
        inspected.close()
        host_task.complete(computed)

    def _call(
        self,
        host_task: bridge.ComputeKeys,
        id: str,
        name: str,
        fn: Callable[..., Any],
        kwargs: Mapping[str, Any],
    ) -> list[Any]:
        failure = (host_task.cache, name, host_task.object.uid)
        try:
            keys = bridge.json_copy(_listed(fn(**kwargs)))
        except ENDING_ERRORS:
            raise
        except BaseException as e:
            if self._failures.add(failure):
                object_name = full_name(host_task.object.namespace, host_task.object.name)
                key = f"{name!r} of {object_name} in the cache {id!r}"
                logger.exception(f"The key {key} cannot be computed: {message_of(e)}")
            return []
        self._failures.discard(failure)
        return cast(list[Any], keys)


def _listed(keys: Any) -> list[Any]:
    """The keys that a function has returned: one, several, or none."""
    if keys is None:
        return []
    if isinstance(keys, (str, bool, int, float, Mapping)):
        return [keys]
    return list(keys)
