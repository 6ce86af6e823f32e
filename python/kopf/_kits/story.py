"""What happens in a cluster in memory, told for a person at a terminal: who has changed what. It owns the
words; it must not know how they get to the terminal.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kopf._kits.clusters.cluster import Cluster
from kopf._kits.clusters.laboratory import Request

# What nobody wants to read about: the news of the operator are in its log, and signs of life are no news.
SILENT = {"events", "leases", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews"}
# Our own bookkeeping, in the objects' annotations: of interest only if nothing else is there.
BOOKKEEPING = "kopf.zalando.org/"

VERBS = {"POST": "created", "PUT": "replaced", "PATCH": "changed", "DELETE": "deleted"}
COLOURS = {"POST": "green", "PUT": "yellow", "PATCH": "yellow", "DELETE": "magenta"}


class Line(NamedTuple):
    """One thing that has happened."""

    text: str
    colour: str


def tell(request: Request) -> Line | None:
    """Tell of a request, if it is worth to be told of."""
    verb = VERBS.get(request.method)
    where = _object_of(request)
    if verb is None or where is None:
        return None
    who = request.agent.split("/")[0] or "somebody"
    if request.code >= 400 or request.code == 0:
        why = request.code or "the connection was reset"
        return Line(f"{who} could not have {where} {verb}: {why}", "red")
    what = ", ".join(_fields_of(request)) if request.method == "PATCH" else ""
    return Line(f"{who} {verb} {where}{': ' if what else ''}{what}", COLOURS[request.method])


def _object_of(request: Request) -> str | None:
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = f" in {parts[1]}", parts[2:]
    if not parts or parts[0] in SILENT:
        return None
    plural, name, subresource = [*parts, "", ""][:3]
    if not name and request.method == "POST":
        body = _decoded(request)
        meta = body.get("metadata") or {}
        name = meta.get("name") or f"{meta.get('generateName', '')}…"
    return f"{plural}/{name}{'/' + subresource if subresource else ''}{namespace}"


def _fields_of(request: Request) -> list[str]:
    if request.content_type.startswith("application/json-patch"):
        try:
            return [str(it["path"]).strip("/").replace("/", ".") for it in request.json]
        except (ValueError, TypeError, KeyError):
            return []
    fields = list(_paths(_decoded(request)))
    ours = [field for field in fields if BOOKKEEPING in field]
    others = [field for field in fields if field not in ours]
    return others + (["the operator's notes"] if ours else [])


def _paths(body: Mapping[str, Any]) -> Iterator[str]:
    for key, value in body.items():
        if key in ("apiVersion", "kind"):
            continue
        if not isinstance(value, Mapping) or not value:
            yield key
            continue
        for inner, deeper in value.items():
            if key == "metadata" and isinstance(deeper, Mapping):
                yield from (f"{key}.{inner}.{it}" for it in deeper)
            elif (key, inner) not in (("metadata", "name"), ("metadata", "namespace")):
                yield f"{key}.{inner}"


def _decoded(request: Request) -> Mapping[str, Any]:
    try:
        body = json.loads(request.body)
    except ValueError:  # YAML, or cut because of its size
        return {}
    return body if isinstance(body, Mapping) else {}


class Teller:
    """Tells the story of a cluster from another thread, for the duration of the `with` block."""

    def __init__(self, cluster: Cluster, say: Callable[[Line], None]) -> None:
        super().__init__()
        self._cluster = cluster
        self._say = say
        self._told = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kopf-story", daemon=True)
        self._task: asyncio.Task[None] | None = None
        self._begun = threading.Event()

    def __enter__(self) -> Teller:
        self._told, _ = self._cluster.requests_since(0)
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self._tell()

    def _run(self) -> None:
        self._task = self._loop.create_task(self._follow())
        self._begun.set()
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _follow(self) -> None:
        await self._cluster.until(self._tell, timeout=None)

    def _tell(self) -> None:
        self._told, requests = self._cluster.requests_since(self._told)
        for request in requests:
            line = tell(request)
            if line is not None:
                self._say(line)
