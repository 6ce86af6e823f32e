"""Report of the changes in the embedded cluster, for `kopf dev`: which client has changed which fields."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kopf._objects import dicts
from kopf._testing.client import ApiError
from kopf._testing.cluster import Cluster
from kopf._testing.embedded import Request
from kopf._testing.manifests import metadata_of

# Not reported: the operator's events are in its log; leases and reviews change nothing of interest.
IGNORED_RESOURCES = {"events", "leases", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews"}
# Kopf's own annotations: they are reported as one.
ANNOTATION_PREFIX = "kopf.zalando.org/"

VERBS = {"POST": "created", "PUT": "replaced", "PATCH": "changed", "DELETE": "deleted"}
COLOURS = {"POST": "green", "PUT": "yellow", "PATCH": "yellow", "DELETE": "magenta"}


class ActivityEntry(NamedTuple):
    """One line of the report."""

    text: str
    colour: str


def describe(request: Request, find: Callable[[str], Any] = lambda path: None) -> ActivityEntry | None:
    """Describe a request, if it is of interest.

    `find` gets the object at a path, or None: to see which of the patched fields the cluster has stored.
    """
    verb = VERBS.get(request.method)
    object_name = _object_name(request)
    if verb is None or object_name is None:
        return None
    user_agent = request.agent.split("/")[0] or "a client"
    if request.code >= 400 or request.code == 0:
        why = request.code or "the connection was reset"
        return ActivityEntry(f"{user_agent} could not have {object_name} {verb}: {why}", "red")
    fields, dropped = _patched_fields(request) if request.method == "PATCH" else ([], [])
    if dropped:
        stored = find(_object_path(request))
        dropped = [path for path in dropped if stored is not None and not _has(stored, path)]
    lost = [".".join(path) for path in dropped]
    kept = [field for field in fields if field not in lost]
    text = f"{user_agent} {verb} {object_name}{': ' if kept else ''}{', '.join(kept)}"
    if lost:
        text += f" (not stored, as the schema has no such fields: {', '.join(lost)})"
    return ActivityEntry(text, COLOURS[request.method])


def _has(body: Any, path: tuple[str, ...]) -> bool:
    return dicts.resolve(body, path, default=dicts.MISSING) is not dicts.MISSING


def _object_path(request: Request) -> str:
    path = request.path.rstrip("/")
    return path.removesuffix("/status").removesuffix("/scale")


def _object_name(request: Request) -> str | None:
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = f" in {parts[1]}", parts[2:]
    if not parts or parts[0] in IGNORED_RESOURCES:
        return None
    plural, name, subresource = [*parts, "", ""][:3]
    if not name and request.method == "POST":
        meta = metadata_of(_decode_body(request))
        name = meta.get("name") or f"{meta.get('generateName', '')}…"
    return f"{plural}/{name}{'/' + subresource if subresource else ''}{namespace}"


def _patched_fields(request: Request) -> tuple[list[str], list[tuple[str, ...]]]:
    """The fields of the patch as they are shown, and the paths of those that it sets."""
    if request.content_type.startswith("application/json-patch"):
        try:
            found = dict(_operation(item) for item in request.json if item.get("op") != "test")
        except (ValueError, TypeError, KeyError, AttributeError):
            return [], []
    else:
        found = dict(_paths(_decode_body(request)))
    for precondition in ("uid", "resourceVersion"):
        found.pop(("metadata", precondition), None)
    ours = [path for path in found if any(ANNOTATION_PREFIX in key for key in path)]
    others = [path for path in found if path not in ours]
    shown = [".".join(path) for path in others] + (["Kopf's annotations"] if ours else [])
    return shown, [path for path in others if found[path]]


def _operation(item: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
    """The path of an operation, and whether it sets a field of a mapping. Positions in lists change."""
    path = _keys(item["path"])
    is_in_list = any(key == "-" or key.isdigit() for key in path)
    return path, item.get("op") in ("add", "replace") and item.get("value") is not None and not is_in_list


def _keys(pointer: str) -> tuple[str, ...]:
    """The keys of a JSON pointer."""
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in pointer.strip("/").split("/"))


def _paths(body: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The fields of a merge patch, and whether they are set and not removed."""
    for key, value in body.items():
        if key in ("apiVersion", "kind"):
            continue
        if not isinstance(value, Mapping) or not value:
            yield (key,), value is not None
            continue
        for inner, deeper in value.items():
            if key == "metadata" and isinstance(deeper, Mapping):
                yield from (((key, inner, item), last is not None) for item, last in deeper.items())
            elif (key, inner) not in (("metadata", "name"), ("metadata", "namespace")):
                yield (key, inner), deeper is not None


def _decode_body(request: Request) -> Mapping[str, Any]:
    try:
        body = json.loads(request.body)
    except ValueError:  # YAML, or cut because of its size
        return {}
    return body if isinstance(body, Mapping) else {}


class ActivityLog:
    """Reports the changes of a cluster in a thread, during the `with` block."""

    def __init__(self, cluster: Cluster, report: Callable[[ActivityEntry], None]) -> None:
        super().__init__()
        self._cluster = cluster
        self._report = report
        self._count = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kopf-activity", daemon=True)
        self._task: asyncio.Task[None] | None = None
        self._started = threading.Event()

    def __enter__(self) -> ActivityLog:
        self._count, _ = self._cluster.requests_since(0)
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the report has failed
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        if self._task is None or self._task.cancelled():
            self._report_new()

    def _run(self) -> None:
        self._task = self._loop.create_task(self._follow())
        self._started.set()
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _follow(self) -> None:
        await self._cluster.wait_until(self._report_new, timeout=None)

    def _report_new(self) -> None:
        self._count, requests = self._cluster.requests_since(self._count)
        for request in requests:
            line = describe(request, self._find)
            if line is not None:
                self._report(line)

    def _find(self, path: str) -> Any:
        try:
            return self._cluster.call("GET", path)
        except (ApiError, RuntimeError):  # it is gone, or the cluster is
            return None
