"""Public names of the framework: everything that operators import, in the table below.

Importing the package costs next to nothing: each name is loaded at its first use (PEP 562). Everything with a
leading underscore is private and can change at any time.
"""

from __future__ import annotations

from kopf import _compat, _install_check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kopf import client as client
    from kopf import on
    from kopf._intents import lifecycles
    from kopf._intents.errors import (
        AdmissionError,
        ErrorsMode,
        HandlerRetriesError,
        HandlerTimeoutError,
        PermanentError,
        TemporaryError,
    )
    from kopf._intents.errors import LeadershipLost as LeadershipLost
    from kopf._intents.errors import ReconcileTimeoutError as ReconcileTimeoutError
    from kopf._intents.filters import ABSENT, PRESENT, all_, any_, none_, not_
    from kopf._intents.lifecycles import get_default_lifecycle, set_default_lifecycle
    from kopf._intents.reconciling import by_label as by_label
    from kopf._intents.reconciling import owned as owned
    from kopf._intents.reconciling import reference as reference
    from kopf._intents.reconciling import same_name as same_name
    from kopf._intents.reconciling import watch as watch
    from kopf._intents.reconciling_settings import Backoff as Backoff
    from kopf._intents.registries import OperatorRegistry
    from kopf._intents.requeue import Requeue as Requeue
    from kopf._intents.selectors import EVERYTHING
    from kopf._intents.settings import OperatorSettings
    from kopf._intents.storages.diffbase import (
        AnnotationsDiffBaseStorage,
        DiffBaseStorage,
        MultiDiffBaseStorage,
        StatusDiffBaseStorage,
    )
    from kopf._intents.storages.progress import (
        AnnotationsProgressStorage,
        MultiProgressStorage,
        ProgressStorage,
        SmartProgressStorage,
        StatusProgressStorage,
    )
    from kopf._kits.events import event, exception, info, warn
    from kopf._kits.hierarchies import adjust_namespace as adjust_namespace
    from kopf._kits.hierarchies import adopt, append_owner_reference, label, remove_owner_reference
    from kopf._kits.hierarchies import harmonize_naming as harmonize_naming
    from kopf._kits.webhooks import (
        WebhookAutoServer,
        WebhookAutoTunnel,
        WebhookDockerDesktopServer,
        WebhookK3dServer,
        WebhookMinikubeServer,
        WebhookNgrokTunnel,
        WebhookServer,
    )
    from kopf._objects.apierrors import ApiError as ApiError
    from kopf._objects.applied import Applied as Applied
    from kopf._objects.applied import ApplyFailed as ApplyFailed
    from kopf._objects.applied import OwnedByAnother as OwnedByAnother
    from kopf._objects.bodies import Body, Meta, Spec, Status
    from kopf._objects.changes import ChangeEvent as ChangeEvent
    from kopf._objects.conditions import Condition as Condition
    from kopf._objects.conditions import Conditions as Conditions
    from kopf._objects.credentials import AiohttpSession, ConnectionInfo, LoginError
    from kopf._objects.dicts import FieldPath, FieldSpec
    from kopf._objects.diffs import Diff, DiffItem, DiffOperation
    from kopf._objects.indices import Index, Store
    from kopf._objects.log_formats import LogFormat
    from kopf._objects.logging_types import Logger
    from kopf._objects.memos import Memo
    from kopf._objects.patches import Patch, PatchFn
    from kopf._objects.reasons import Reason
    from kopf._objects.references import (
        ObjectReference,
        OwnerReference,
        build_object_reference,
        build_owner_reference,
    )
    from kopf._objects.refs import Ref as Ref
    from kopf._objects.refs import ref as ref
    from kopf._objects.resources import Resource
    from kopf._objects.reviews import (
        Headers,
        Operation,
        SSLPeer,
        UserInfo,
        WebhookClientConfig,
        WebhookClientConfigService,
        WebhookFn,
        WebhookServerProtocol,
    )
    from kopf._objects.stoppers import (
        AsyncDaemonStopperChecker,
        DaemonStopped,
        DaemonStoppingReason,
        SyncDaemonStopperChecker,
    )
    from kopf._objects.typedefs import (
        Annotations,
        BodyEssence,
        HandlerId,
        Labels,
        ProgressRecord,
        RawBody,
        RawEvent,
        RawEventType,
    )
    from kopf._runtime.caches import Cache as Cache
    from kopf._runtime.caches import cache as cache
    from kopf._runtime.children import Children as Children
    from kopf._runtime.client.applying import apply as apply
    from kopf._runtime.client.applying import apply_sync as apply_sync
    from kopf._runtime.client.connecting import connect as connect
    from kopf._runtime.client.connecting import connect_sync as connect_sync
    from kopf._runtime.client.current import wait_for as wait_for
    from kopf._runtime.default_registry import get_default_registry, set_default_registry
    from kopf._runtime.leadership import Leadership as Leadership
    from kopf._runtime.leadership import leadership as leadership
    from kopf._runtime.loggers import LocalObjectLogger, ObjectLogger, configure
    from kopf._runtime.login import (
        login_via_async_client,
        login_via_client,
        login_via_pykube,
        login_with_kubeconfig,
        login_with_service_account,
    )
    from kopf._runtime.operator import operator, run, run_tasks, spawn_tasks
    from kopf._runtime.subhandlers import execute
    from kopf._runtime.triggers import trigger as trigger
    from kopf._runtime.triggers import trigger_all as trigger_all
    from kopf.on import daemon, index, register, subhandler, timer

__version__ = "0.1.0"
__version_tuple__ = (0, 1, 0)
__commit_id__: str | None = None

_MODULES = {
    "client": "kopf.client",
    "on": "kopf.on",
    "lifecycles": "kopf._intents.lifecycles",
}
_NAMES_BY_MODULE = {
    "kopf.on": "daemon index register subhandler timer",
    "kopf._runtime.subhandlers": "execute",
    "kopf._runtime.loggers": "LocalObjectLogger ObjectLogger configure",
    "kopf._runtime.login": (
        "login_via_async_client login_via_client login_via_pykube login_with_kubeconfig "
        "login_with_service_account"
    ),
    "kopf._runtime.operator": "operator run run_tasks spawn_tasks",
    "kopf._runtime.caches": "Cache cache",
    "kopf._runtime.children": "Children",
    "kopf._runtime.client.applying": "apply apply_sync",
    "kopf._runtime.client.connecting": "connect connect_sync",
    "kopf._runtime.client.current": "wait_for",
    "kopf._intents.requeue": "Requeue",
    "kopf._objects.conditions": "Condition Conditions",
    "kopf._intents.reconciling": "by_label owned reference same_name watch",
    "kopf._intents.reconciling_settings": "Backoff",
    "kopf._runtime.leadership": "Leadership leadership",
    "kopf._runtime.triggers": "trigger trigger_all",
    "kopf._objects.apierrors": "ApiError",
    "kopf._objects.applied": "Applied ApplyFailed OwnedByAnother",
    "kopf._objects.changes": "ChangeEvent",
    "kopf._objects.refs": "Ref ref",
    "kopf._runtime.default_registry": "get_default_registry set_default_registry",
    "kopf._kits.events": "event exception info warn",
    "kopf._kits.hierarchies": (
        "adjust_namespace adopt append_owner_reference harmonize_naming label remove_owner_reference"
    ),
    "kopf._kits.webhooks": (
        "WebhookAutoServer WebhookAutoTunnel WebhookDockerDesktopServer WebhookK3dServer "
        "WebhookMinikubeServer WebhookNgrokTunnel WebhookServer"
    ),
    "kopf._intents.errors": (
        "AdmissionError ErrorsMode HandlerRetriesError HandlerTimeoutError LeadershipLost PermanentError "
        "ReconcileTimeoutError TemporaryError"
    ),
    "kopf._intents.filters": "ABSENT PRESENT all_ any_ none_ not_",
    "kopf._intents.lifecycles": "get_default_lifecycle set_default_lifecycle",
    "kopf._intents.registries": "OperatorRegistry",
    "kopf._intents.selectors": "EVERYTHING",
    "kopf._intents.settings": "OperatorSettings",
    "kopf._intents.storages.diffbase": (
        "AnnotationsDiffBaseStorage DiffBaseStorage MultiDiffBaseStorage StatusDiffBaseStorage"
    ),
    "kopf._intents.storages.progress": (
        "AnnotationsProgressStorage MultiProgressStorage ProgressStorage "
        "SmartProgressStorage StatusProgressStorage"
    ),
    "kopf._objects.bodies": "Body Meta Spec Status",
    "kopf._objects.credentials": "AiohttpSession ConnectionInfo LoginError",
    "kopf._objects.dicts": "FieldPath FieldSpec",
    "kopf._objects.diffs": "Diff DiffItem DiffOperation",
    "kopf._objects.indices": "Index Store",
    "kopf._objects.log_formats": "LogFormat",
    "kopf._objects.logging_types": "Logger",
    "kopf._objects.memos": "Memo",
    "kopf._objects.patches": "Patch PatchFn",
    "kopf._objects.typedefs": (
        "Annotations BodyEssence HandlerId Labels ProgressRecord RawBody RawEvent RawEventType"
    ),
    "kopf._objects.reasons": "Reason",
    "kopf._objects.references": "ObjectReference OwnerReference build_object_reference build_owner_reference",
    "kopf._objects.resources": "Resource",
    "kopf._objects.reviews": (
        "Headers Operation SSLPeer UserInfo WebhookClientConfig "
        "WebhookClientConfigService WebhookFn WebhookServerProtocol"
    ),
    "kopf._objects.stoppers": (
        "AsyncDaemonStopperChecker DaemonStopped DaemonStoppingReason SyncDaemonStopperChecker"
    ),
}
_MODULES_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

# They are public, too, but are not imported by an asterisk: two names of Kopf 1.45, and additions.
_UNLISTED = ("adjust_namespace", "harmonize_naming")
_ADDED = (
    "ApiError",
    "Applied",
    "ApplyFailed",
    "Backoff",
    "Cache",
    "Children",
    "ChangeEvent",
    "Condition",
    "Conditions",
    "Leadership",
    "LeadershipLost",
    "OwnedByAnother",
    "ReconcileTimeoutError",
    "Ref",
    "Requeue",
    "apply",
    "apply_sync",
    "by_label",
    "cache",
    "client",
    "connect",
    "connect_sync",
    "leadership",
    "owned",
    "ref",
    "reference",
    "same_name",
    "trigger",
    "trigger_all",
    "wait_for",
    "watch",
)

__all__ = [
    "ABSENT",
    "EVERYTHING",
    "PRESENT",
    "AdmissionError",
    "AiohttpSession",
    "Annotations",
    "AnnotationsDiffBaseStorage",
    "AnnotationsProgressStorage",
    "AsyncDaemonStopperChecker",
    "Body",
    "BodyEssence",
    "ConnectionInfo",
    "DaemonStopped",
    "DaemonStoppingReason",
    "Diff",
    "DiffBaseStorage",
    "DiffItem",
    "DiffOperation",
    "ErrorsMode",
    "FieldPath",
    "FieldSpec",
    "HandlerId",
    "HandlerRetriesError",
    "HandlerTimeoutError",
    "Headers",
    "Index",
    "Labels",
    "LocalObjectLogger",
    "LogFormat",
    "Logger",
    "LoginError",
    "Memo",
    "Meta",
    "MultiDiffBaseStorage",
    "MultiProgressStorage",
    "ObjectLogger",
    "ObjectReference",
    "Operation",
    "OperatorRegistry",
    "OperatorSettings",
    "OwnerReference",
    "Patch",
    "PatchFn",
    "PermanentError",
    "ProgressRecord",
    "ProgressStorage",
    "RawBody",
    "RawEvent",
    "RawEventType",
    "Reason",
    "Resource",
    "SSLPeer",
    "SmartProgressStorage",
    "Spec",
    "Status",
    "StatusDiffBaseStorage",
    "StatusProgressStorage",
    "Store",
    "SyncDaemonStopperChecker",
    "TemporaryError",
    "UserInfo",
    "WebhookAutoServer",
    "WebhookAutoTunnel",
    "WebhookClientConfig",
    "WebhookClientConfigService",
    "WebhookDockerDesktopServer",
    "WebhookFn",
    "WebhookK3dServer",
    "WebhookMinikubeServer",
    "WebhookNgrokTunnel",
    "WebhookServer",
    "WebhookServerProtocol",
    "adopt",
    "all_",
    "any_",
    "append_owner_reference",
    "build_object_reference",
    "build_owner_reference",
    "configure",
    "daemon",
    "event",
    "exception",
    "execute",
    "get_default_lifecycle",
    "get_default_registry",
    "index",
    "info",
    "label",
    "lifecycles",
    "login_via_async_client",
    "login_via_client",
    "login_via_pykube",
    "login_with_kubeconfig",
    "login_with_service_account",
    "none_",
    "not_",
    "on",
    "operator",
    "register",
    "remove_owner_reference",
    "run",
    "run_tasks",
    "set_default_lifecycle",
    "set_default_registry",
    "spawn_tasks",
    "subhandler",
    "timer",
    "warn",
]


if _install_check.is_original_installed(__path__):
    _install_check.warn(__path__[0])
_compat.install()


if not TYPE_CHECKING:  # type checkers must find those names that do not exist

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _MODULES:
            value: object = import_module(_MODULES[name])
        elif name in _MODULES_BY_NAME:
            value = getattr(import_module(_MODULES_BY_NAME[name]), name)
        elif f"kopf.{name}" in _compat.ORIGINAL_PACKAGES:
            value = import_module(f"kopf.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value  # the next time, it is found without asking
        return value


def __dir__() -> list[str]:
    dunders = [name for name in globals() if name.startswith("_")]
    return sorted({*__all__, *_UNLISTED, *_ADDED, *dunders})
