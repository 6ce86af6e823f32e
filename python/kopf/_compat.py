"""Import aliases for the private modules of Kopf 1.45, for operators that import them.

Nothing is imported until it is used. Each use gives the object of this package and a `DeprecationWarning`
with the public replacement, if there is one. Names that have no alias fail with a message on where to look.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any

ORIGINAL_PACKAGES = ("kopf._cogs", "kopf._core")
DEFAULT_HINT = (
    "Private modules of the original framework are not here; for the public names, see `kopf.__all__`."
)

_CLIENTS = "To send requests, use a client library: `kubernetes`, `kr8s`, `pykube-ng`."
_NATIVE = (
    "This is done by the engine, which is not in Python. To try an operator in a test, see `kopf.testing`; "
    "to run one, `kopf.operator()`."
)
_TASKS = "Such helpers of asyncio are not here: asyncio itself has `TaskGroup`, `timeout()`, `Runner`."
_OLD = "The original framework moved it under `kopf` itself in its version 1.30; see `kopf.__all__`."

# Removed names, with hints on the replacements: by the longest prefix of the path.
REMOVED: dict[str, str] = {
    "kopf._cogs.clients": _CLIENTS,
    "kopf._cogs.aiokits": _TASKS,
    "kopf._cogs.structs.finalizers": "Finalizers are at `meta.get('finalizers')` of a body.",
    "kopf._cogs.structs.references": "Resources are `kopf.Resource`: handlers get it as `resource`.",
    "kopf._core.actions": _NATIVE,
    "kopf._core.reactor": _NATIVE,
    "kopf._core.engines": _NATIVE,
    "kopf._core.engines.admission.serve_admission_request": (
        "To review an object in a test, create it in `kopf.testing.Cluster` with an operator running, or "
        "call the handler as the function that it is."
    ),
    "kopf._core.engines.admission.build_webhooks": (
        "Webhook configurations are made by the engine: set `settings.admission.managed`, and see them in "
        "the cluster or in `kopf.testing.Cluster`."
    ),
    "kopf._core.engines.activities": (
        "Activities are run by the operator only; a handler can be called as the function that it is."
    ),
    "kopf._kits.webhacks": "A webhook server is any async generator; see `kopf.WebhookServerProtocol`.",
    **dict.fromkeys(
        [
            *["kopf.clients", "kopf.config", "kopf.engines", "kopf.reactor", "kopf.storage", "kopf.structs"],
            *["kopf.toolkits", "kopf.utilities"],
        ],
        _OLD,
    ),
}

_LOGS = (
    "LocalObjectLogger ObjectJsonFormatter ObjectLogger ObjectPrefixingJsonFormatter "
    "ObjectPrefixingTextFormatter ObjectTextFormatter TerseObjectLogger configure make_formatter"
)
_CAUSES = "ActivityCause ChangingCause DaemonCause IndexingCause SpawningCause WatchingCause WebhookCause"
_HANDLERS = (
    "ActivityHandler ChangingHandler DaemonHandler IndexingHandler ResourceHandler SpawningHandler "
    "TimerHandler WatchingHandler WebhookHandler"
)
_CALLBACKS = (
    "ActivityFn ChangingFn DaemonFn DelayFn IndexingFn MetaFilterFn TimerFn WatchingFn WebhookFn WhenFilterFn"
)
_SETTINGS = (
    "AdmissionSettings BackgroundSettings ExecutionSettings NetworkingSettings OperatorSettings "
    "PeeringSettings PersistenceSettings PostingSettings ProcessSettings QueueingSettings "
    "ScanningSettings WatchingSettings"
)
_REGISTRIES = (
    "ActivityRegistry ChangingRegistry GenericRegistry IndexingRegistry OperatorRegistry ResourceRegistry "
    "SpawningRegistry WatchingRegistry WebhooksRegistry generate_id get_callable_id"
)
_CONVENTIONS = (
    "CollisionEvadingConvention StorageKeyFormingConvention StorageKeyMarkingConvention StorageStanzaCleaner"
)
_LOGINS = (
    "PRIORITY_OF_ASYNC_CLIENT PRIORITY_OF_CLIENT PRIORITY_OF_KUBECONFIG PRIORITY_OF_PYKUBE "
    "PRIORITY_OF_SERVICE_ACCOUNT has_async_client has_client has_kubeconfig has_pykube has_service_account "
    "has_sync_client login_via_async_client login_via_client login_via_pykube "
    "login_with_kubeconfig login_with_service_account"
)

# Where their names are here: their module -> our module -> names; "ours=theirs" where the names differ.
ALIASES: dict[str, dict[str, str]] = {
    "kopf._cogs.structs.bodies": {
        "kopf._objects.bodies": "Body Meta Spec Status",
        "kopf._objects.typedefs": (
            "Annotations BodyEssence Labels MetaEssence RawBody RawEvent RawEventType RawMeta"
        ),
        "kopf._objects.references": (
            "ObjectReference OwnerReference build_object_reference build_owner_reference"
        ),
    },
    "kopf._cogs.structs.diffs": {
        "kopf._objects.diffs": "Diff DiffItem DiffOperation DiffScope EMPTY diff reduce"
    },
    "kopf._cogs.structs.dicts": {
        "kopf._objects.dicts": (
            "FieldPath FieldSpec cherrypick ensure parse_field remove resolve resolve_obj walk"
        ),
        "kopf._objects.views": "MappingView MutableMappingView ReplaceableMappingView",
    },
    "kopf._cogs.structs.patches": {"kopf._objects.patches": "MetaPatch Patch PatchFn SpecPatch StatusPatch"},
    "kopf._cogs.structs.ephemera": {
        "kopf._objects.memos": "AnyMemo Memo",
        "kopf._objects.indices": "Index Store",
    },
    "kopf._cogs.structs.references": {
        "kopf._objects.resources": "Resource",
        "kopf._intents.selectors": (
            "EVERYTHING Marker NamespaceName NamespacePattern Selector match_namespace"
        ),
        "kopf._compat": "Insights",
    },
    "kopf._cogs.structs.credentials": {
        "kopf._objects.credentials": "AiohttpSession ConnectionInfo KubeContext LoginError Vault VaultKey"
    },
    "kopf._cogs.structs.ids": {"kopf._objects.typedefs": "HandlerId"},
    "kopf._cogs.structs.reviews": {
        "kopf._objects.reviews": (
            "Headers Operation Request RequestKind RequestPayload RequestResource Response ResponsePayload "
            "ResponseStatus SSLPeer UserInfo WebhookClientConfig WebhookClientConfigService WebhookFn "
            "WebhookServerProtocol"
        )
    },
    "kopf._cogs.configs.configuration": {"kopf._intents.settings": _SETTINGS},
    "kopf._cogs.configs.arrays": {"kopf._intents.selectors": "SelectorMapping"},
    "kopf._cogs.configs.progress": {
        "kopf._objects.typedefs": "ProgressRecord",
        "kopf._intents.storages.progress": (
            "AnnotationsProgressStorage MultiProgressStorage ProgressStorage SmartProgressStorage "
            "StatusProgressStorage"
        ),
    },
    "kopf._cogs.configs.diffbase": {
        "kopf._intents.storages.diffbase": (
            "AnnotationsDiffBaseStorage DiffBaseStorage MultiDiffBaseStorage StatusDiffBaseStorage"
        )
    },
    "kopf._cogs.configs.conventions": {"kopf._intents.storages.conventions": _CONVENTIONS},
    "kopf._cogs.helpers.typedefs": {"kopf._objects.logging_types": "Logger"},
    "kopf._cogs.helpers.versions": {
        "kopf": "__version__=version __version_tuple__=version_tuple __commit_id__=commit_id"
    },
    "kopf._cogs.helpers.loaders": {"kopf._runtime.loaders": "preload"},
    "kopf._cogs.aiokits.aioadapters": {"kopf._runtime.stop_flags": "Flag raise_flag wait_flag"},
    "kopf._cogs.aiokits.aioenums": {
        "kopf._objects.stoppers": "AsyncFlagWaiter FlagSetter FlagWaiter SyncFlagWaiter"
    },
    "kopf._core.actions.execution": {
        "kopf._intents.errors": (
            "ErrorsMode HandlerChildrenRetry HandlerRetriesError HandlerTimeoutError PermanentError "
            "TemporaryError"
        ),
        "kopf._intents.handlers": "Handler",
        "kopf._intents.causes": "Cause",
        "kopf._intents.lifecycles": "LifeCycleFn",
        "kopf._runtime.context": "cause_var handler_var sublifecycle_var subrefs_var subsettings_var",
    },
    "kopf._core.actions.invocation": {
        "kopf._runtime.context": "context",
        "kopf._runtime.invocation": "invoke",
        "kopf._runtime.functions": "is_async_fn",
    },
    "kopf._core.actions.loggers": {
        "kopf._runtime.loggers": _LOGS,
        "kopf._objects.log_formats": "LogFormat",
    },
    "kopf._core.actions.lifecycles": {
        "kopf._intents.lifecycles": (
            "all_at_once asap get_default_lifecycle one_by_one randomized set_default_lifecycle shuffled"
        )
    },
    "kopf._core.engines.posting": {
        "kopf._kits.events": "event exception info warn",
        "kopf._runtime.posting": "K8sEvent K8sPoster enqueue",
        "kopf._runtime.context": "event_queue_loop_var event_queue_var settings_var",
    },
    "kopf._core.engines.indexing": {
        "kopf._objects.indices": (
            "LiveIndex=Index LiveIndex=OperatorIndexer LiveStore=Store Indexers=OperatorIndexers "
            "Indexers=OperatorIndices"
        )
    },
    "kopf._core.engines.admission": {
        "kopf._intents.errors": "AdmissionError",
        "kopf._runtime.admission": (
            "AmbiguousResourceError MissingDataError UnknownResourceError WebhookError"
        ),
    },
    "kopf._core.engines.activities": {"kopf._runtime.activities": "ActivityError"},
    "kopf._core.engines.peering": {"kopf._runtime.identity": "Identity detect_own_id"},
    "kopf._core.intents.registries": {
        "kopf._intents.registries": _REGISTRIES,
        "kopf._runtime.default_registry": "SmartOperatorRegistry get_default_registry set_default_registry",
    },
    "kopf._core.intents.handlers": {"kopf._intents.handlers": _HANDLERS},
    "kopf._core.intents.causes": {
        "kopf._intents.causes": _CAUSES + " Cause=BaseCause ResourceCause",
        "kopf._objects.reasons": "Activity HANDLER_REASONS Reason WebhookType",
    },
    "kopf._core.intents.callbacks": {
        "kopf._intents.callbacks": _CALLBACKS,
        "kopf._intents.filters": "all_ any_ none_ not_",
    },
    "kopf._core.intents.filters": {"kopf._intents.filters": "ABSENT MetaFilterToken PRESENT"},
    "kopf._core.intents.stoppers": {
        "kopf._objects.stoppers": (
            "AsyncDaemonStopperChecker DaemonStopped DaemonStopper DaemonStoppingReason "
            "SyncDaemonStopperChecker"
        )
    },
    "kopf._core.intents.piggybacking": {"kopf._runtime.login": _LOGINS},
    "kopf._kits.loops": {"kopf._cli.event_loop": "event_loop=proper_loop"},
    "kopf._kits.runner": {"kopf.testing": "KopfRunner"},
    "kopf._core.reactor.inventory": {"kopf._compat": "ResourceMemories"},
    "kopf._core.reactor.running": {
        "kopf._runtime.operator": "operator run spawn_tasks",
        "kopf._runtime.supervision": "run_tasks",
    },
    "kopf._core.reactor.subhandling": {
        "kopf._runtime.subhandlers": "execute",
        "kopf._runtime.context": "subregistry_var subexecuted_var",
    },
}


class ResourceMemories:
    """Accepted as `memories=` of an operator, and not used: the engine keeps the states of objects."""


class Insights:
    """Accepted as `insights=` of an operator, and not used: the engine keeps the discovered resources."""


class _Finder:
    """Finds the modules of the table and the packages above them; it is asked before all others: if the files
    of the original are in the same folder, they must not be mixed with ours.
    """

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("kopf."):
            return None
        is_original = fullname.startswith(ORIGINAL_PACKAGES)
        is_package = is_original and _has_modules(fullname)
        if not is_package and fullname not in ALIASES:
            if is_original or _hint(fullname) is not DEFAULT_HINT:
                text = f"No module named {fullname!r}. {_hint(fullname)}"
                raise ModuleNotFoundError(text, name=fullname)
            return None
        from importlib.machinery import ModuleSpec

        loader: Any = _Loader()  # not derived from the abstract class: that would cost its import
        return ModuleSpec(fullname, loader, origin="kopf._compat", is_package=is_package)


class _AliasModule(ModuleType):
    """A module without any content: its names are those of other modules, also when they are assigned.

    Deleting an assigned name restores the value before it: tests end their patches in this way.
    """

    def __getattr__(self, name: str) -> object:
        return _get(self.__name__, name)

    def __setattr__(self, name: str, value: object) -> None:
        source = _source(self.__name__, name)
        if source is None:
            super().__setattr__(name, value)
        else:
            _replaced.setdefault((self.__name__, name), getattr(*source))
            setattr(*source, value)

    def __delattr__(self, name: str) -> None:
        source = _source(self.__name__, name)
        if source is None or (self.__name__, name) not in _replaced:
            super().__delattr__(name)
        else:
            setattr(*source, _replaced.pop((self.__name__, name)))


_replaced: dict[tuple[str, str], object] = {}
"""The values before assignments, by the alias modules and their names."""


class _Loader:
    """Makes modules whose names are looked up in the table when they are used."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType | None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        module.__class__ = _AliasModule


def _has_modules(package: str) -> bool:
    return any(name.startswith(f"{package}.") for name in ALIASES)


def _source(module_name: str, name: str) -> tuple[ModuleType, str] | None:
    """The module of this package with the name, and its name there."""
    from importlib import import_module

    for our_module, names in ALIASES.get(module_name, {}).items():
        for entry in names.split():
            ours, _, theirs = entry.partition("=")
            if name == (theirs or ours):
                return import_module(our_module), ours
    return None


def _get(module_name: str, name: str) -> object:
    import warnings

    # The import system itself asks for things like `__path__`.
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(f"module {module_name!r} has no attribute {name!r}")

    # The original framework imports all of its modules: they are attributes of their packages.
    path = f"{module_name}.{name}"
    if path in ALIASES or _has_modules(path):
        from importlib import import_module

        return import_module(path)

    source = _source(module_name, name)
    if source is not None:
        our_module, ours = source
        value = getattr(our_module, ours)
        kopf = sys.modules["kopf"]
        public = ours in getattr(kopf, "__all__", ()) and getattr(kopf, ours) is value
        hint = f"use kopf.{ours}" if public else "there is no public replacement"
        if our_module.__name__ == "kopf.testing":
            hint = f"use kopf.testing.{ours}"
        # 1: here, 2: the module's getter, 3: the user (or the import system, which is not counted).
        warnings.warn(f"{path} is private; {hint}.", DeprecationWarning, stacklevel=3)
        return value
    hint_text = _hint(path)
    raise AttributeError(f"module {module_name!r} has no attribute {name!r}. {hint_text}")


def _hint(path: str) -> str:
    while path:
        if path in REMOVED:
            return REMOVED[path]
        path = path.rpartition(".")[0]
    return DEFAULT_HINT


def install() -> None:
    """Let the private modules of the original framework be importable, even if its own files are there."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
