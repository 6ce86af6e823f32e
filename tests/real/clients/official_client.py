"""`kubernetes`, and `kubernetes_asyncio`: the same functions as coroutines."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import re
from collections.abc import Callable
from typing import Any

from kinds import CONFIG_MAPS, Kind
from selector_text import text_of

CONTENT_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
APIS = {"": "CoreV1Api", "apps": "AppsV1Api", "apiextensions.k8s.io": "ApiextensionsV1Api"}


class OfficialClient:
    """Built-in kinds with their models, custom ones with `CustomObjectsApi`."""

    features = frozenset(
        (
            "replace",
            "json",
            "strategic",
            "apply",
            "apply-status",
            "dry-run",
            "pages",
            "since",
            "initial",
            "uid",
            "collection",
            "evict",
        )
    )

    def __init__(self, library: str, namespace: str) -> None:
        self.namespace = namespace
        self._library = importlib.import_module(library)
        self._watch = importlib.import_module(f"{library}.watch")
        self._dynamic = importlib.import_module(f"{library}.dynamic")
        self._loop = asyncio.new_event_loop()
        config = importlib.import_module(f"{library}.config")
        self._run(config.load_kube_config)
        self._client = self._run(self._library.client.ApiClient)

    def close(self) -> None:
        self._run(self._client.close)
        self._loop.close()

    def _run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function, or a coroutine function."""

        async def call() -> Any:
            result = function(*args, **options)
            return await result if inspect.isawaitable(result) else result

        return self._loop.run_until_complete(call())

    def _call(self, verb: str, kind: Kind, *args: Any, subresource: str | None = None, **options: Any) -> Any:
        function, leading = self._function(verb, kind, subresource)
        result = self._run(function, *leading, *args, **options)
        return self._client.sanitize_for_serialization(result)

    def _function(
        self, verb: str, kind: Kind, subresource: str | None = None
    ) -> tuple[Callable[..., Any], list[str]]:
        """The function of a verb, and the arguments before the name."""
        client, suffix = self._library.client, f"_{subresource}" if subresource else ""
        leading = [self.namespace] if kind.is_namespaced else []
        if kind.group not in APIS:
            api = client.CustomObjectsApi(self._client)
            leading = [kind.group, kind.version, *leading, kind.plural]
            return getattr(api, f"{verb}_namespaced_custom_object{suffix}"), leading
        api = getattr(client, APIS[kind.group])(self._client)
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.name).lower()
        scope = "namespaced_" if kind.is_namespaced else ""
        return getattr(api, f"{verb.replace('get', 'read')}_{scope}{name}{suffix}"), leading

    def _named(self, verb: str, kind: Kind, name: str, *args: Any, **options: Any) -> Any:
        """Call a function that takes the name before the namespace, except for custom kinds."""
        function, leading = self._function(verb, kind, options.pop("subresource", None))
        arguments = [*leading, name] if kind.group not in APIS else [name, *leading]
        result = self._run(function, *arguments, *args, **options)
        return self._client.sanitize_for_serialization(result)

    def create(self, kind: Kind, body: Any, *, dry_run: bool = False) -> Any:
        return self._call("create", kind, body, **({"dry_run": "All"} if dry_run else {}))

    def get(self, kind: Kind, name: str, *, subresource: str | None = None) -> Any:
        return self._named("get", kind, name, subresource=subresource)

    def list(self, kind: Kind, *, labels: Any = (), fields: Any = ()) -> Any:
        selectors = {"label_selector": text_of(labels), "field_selector": text_of(fields)}
        return self._call("list", kind, **{key: text for key, text in selectors.items() if text})

    def pages(self, kind: Kind, limit: int) -> list[int]:
        sizes, options = [], {}
        while True:
            page = self._call("list", kind, limit=limit, **options)
            sizes.append(len(page["items"]))
            if not page["metadata"].get("continue"):
                return sizes
            options = {"_continue": page["metadata"]["continue"]}

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        *,
        dialect: str = "merge",
        subresource: str | None = None,
        manager: str | None = None,
        force: bool = False,
    ) -> Any:
        options: dict[str, Any] = {"_content_type": CONTENT_TYPES[dialect]}
        if manager is not None:
            options |= {"field_manager": manager, "force": force}
        return self._named("patch", kind, name, patch, subresource=subresource, **options)

    def replace(self, kind: Kind, name: str, body: Any, *, subresource: str | None = None) -> Any:
        return self._named("replace", kind, name, body, subresource=subresource)

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        policy: str | None = None,
        uid: str | None = None,
        version: str | None = None,
    ) -> Any:
        options: dict[str, Any] = {}
        if policy is not None:
            options["propagation_policy"] = policy
        given = {"uid": uid, "resourceVersion": version}
        preconditions = {key: value for key, value in given.items() if value is not None}
        if preconditions:
            options["body"] = {"preconditions": preconditions}
        return self._named("delete", kind, name, **options)

    def evict(self, name: str) -> Any:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        api = self._library.client.CoreV1Api(self._client)
        made = self._run(api.create_namespaced_pod_eviction, name, self.namespace, body)
        return self._client.sanitize_for_serialization(made)

    def delete_collection(self, kind: Kind, labels: Any) -> Any:
        return self._call("delete_collection", kind, label_selector=text_of(labels))

    def watch(self, kind: Kind, since: str | None, count: int, *, labels: Any = ()) -> Any:
        options: dict[str, Any] = {}
        if since is not None:
            options["resource_version"] = since
        if labels:
            options["label_selector"] = text_of(labels)
        return self._watch_with(kind, count, options)

    def watch_initial(self, kind: Kind, count: int, labels: Any) -> Any:
        options = {
            "label_selector": text_of(labels),
            "send_initial_events": True,
            "resource_version_match": "NotOlderThan",
            "allow_watch_bookmarks": True,
        }
        return self._watch_with(kind, count, options)

    def _watch_with(self, kind: Kind, count: int, options: dict[str, Any]) -> Any:
        function, leading = self._function("list", kind)
        options["timeout_seconds"] = 20
        events = []

        async def read() -> None:
            watch = self._watch.Watch()
            stream = watch.stream(function, *leading, **options)
            if hasattr(stream, "__aiter__"):
                async for event in stream:
                    events.append((event["type"], event["raw_object"]))
                    if len(events) == count:
                        break
                await watch.close()
                return
            for event in stream:
                events.append((event["type"], event["raw_object"]))
                if len(events) == count:
                    break
            stream.close()

        self._loop.run_until_complete(read())
        return events

    def error_of(self, error: Exception) -> dict[str, Any] | None:
        status = getattr(error, "status", None)
        if not isinstance(status, int):
            return None
        body = getattr(error, "body", None)
        # The path of an unknown kind has no handler, which could answer with a document.
        return json.loads(body) if body and body.startswith("{") else {"code": status, "message": body}

    def extras(self, outcomes: Any, kind: Kind) -> None:
        """The dynamic client."""
        dynamic = self._run(self._dynamic.DynamicClient, self._client)

        async def find(api_version: str, name: str) -> Any:
            found = dynamic.resources.get(api_version=api_version, kind=name)
            return await found if inspect.isawaitable(found) else found

        async def plain(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
            result = function(*args, namespace=self.namespace, **options)
            result = await result if inspect.isawaitable(result) else result
            return result.to_dict()

        for known in (kind, CONFIG_MAPS):
            api = self._run(find, known.api_version, known.name)
            fields = {"spec": {"size": 3}} if known == kind else {"data": {"a": "b"}}
            step = f"dynamic: {known.plural}:"
            body = known.object("dynamic", **fields)
            outcomes.step(f"{step} create", self._run, plain, api.create, body=body)
            outcomes.step(f"{step} create again", self._run, plain, api.create, body=body)
            outcomes.step(f"{step} get", self._run, plain, api.get, name="dynamic")
            patch = {"metadata": {"labels": {"a": "b"}}}
            options = {"name": "dynamic", "body": patch, "content_type": CONTENT_TYPES["merge"]}
            outcomes.step(f"{step} merge", self._run, plain, api.patch, **options)
            changed = {**body, "metadata": {"name": "dynamic", "annotations": {"c": "d"}}}
            options = {"name": "dynamic", "body": changed, "field_manager": "dynamic"}
            outcomes.step(f"{step} apply", self._run, plain, api.server_side_apply, **options)
            outcomes.step(f"{step} delete", self._run, plain, api.delete, name="dynamic")
            outcomes.step(f"{step} get again", self._run, plain, api.get, name="dynamic")
