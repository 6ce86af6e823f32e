"""A flow of requests with webhooks: each step has the client's answer and the requests of the webhooks."""

from __future__ import annotations

import re
import time
from typing import Any

from tests.conformance.generative.client import Answer, Client
from tests.conformance.generative.normalise import normalise
from tests.support.webhooks import Answer as WebhookAnswer
from tests.support.webhooks import Call, Object, WebhookServer

TIMEOUT = 30.0
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
CHANGES = ("PUT", "PATCH", "DELETE")
HEADERS = ("content-type", "accept", "user-agent")
# kube-apiserver shows managed fields in objects of subresources; the embedded server does not.
UNMANAGED = ("Scale", "Binding", "Eviction")
CHOSEN = [
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
    (re.compile(r"(?<=flow-generated-)[a-z0-9]{5}"), "<suffix>"),
]


class Flow:
    """A flow on one server."""

    def __init__(self, client: Client, webhook: WebhookServer) -> None:
        self.client, self.webhook = client, webhook
        self.outcomes: dict[str, Any] = {}
        self.answers: dict[str, WebhookAnswer] = {}
        """The answers of webhooks in all steps; the others allow everything."""

    def send(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Answer:
        """Send a request that is no step."""
        return self.client.send(method, path, body, content_type)

    def must(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Send a request that must succeed."""
        answer = self.send(method, path, body, content_type)
        assert answer.code < 300, (method, path, answer)
        return answer.body

    def step(
        self,
        name: str,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        *,
        answers: dict[str, WebhookAnswer] | None = None,
        calls: bool = True,
    ) -> Answer:
        """Send a request, while the webhooks answer with `answers`, and record what has happened."""
        assert name not in self.outcomes, name
        if method in CHANGES:
            self.until_cached(path.partition("?")[0])
        self.webhook.take_calls()
        self.webhook.answers = {**self.answers, **(answers or {})}
        answer = self.send(method, path, body, content_type)
        self.webhook.answers = self.answers
        outcome: Object = {"answer": chosen(normalise(answer))}
        made = self.webhook.take_calls()
        if calls:
            outcome["calls"] = sorted(map(described, made), key=lambda call: (call["path"], call["order"]))
            for call in outcome["calls"]:
                del call["order"]
        self.outcomes[name] = outcome
        return answer

    def until_served(self, path: str) -> None:
        """Wait for a custom resource."""
        deadline = time.monotonic() + TIMEOUT
        while self.send("GET", path).code != 200:
            assert time.monotonic() < deadline, path

    def until_cached(self, path: str) -> None:
        """Wait until the cache of the API server has the latest state of an object.

        A change begins with the state in the cache. If that is older, the API server calls the webhooks for
        it, and again for the latest state.
        """
        latest = self.send("GET", path)
        if latest.code != 200 or "name" not in latest.body["metadata"]:  # nothing, or a list
            return
        deadline = time.monotonic() + TIMEOUT
        while version_of(self.send("GET", f"{path}?resourceVersion=0")) != version_of(latest):
            assert time.monotonic() < deadline, path

    def until_called(self, paths: set[str], method: str, path: str, body: Any) -> None:
        """Repeat a dry run until all the webhooks are called."""
        deadline = time.monotonic() + TIMEOUT
        self.webhook.take_calls()
        while not paths <= {call.path for call in self.webhook.take_calls()}:
            assert time.monotonic() < deadline, paths
            self.must(method, f"{path}?dryRun=All", body)


def version_of(answer: Answer) -> Any:
    """The version of the object in an answer."""
    return answer.body.get("metadata", {}).get("resourceVersion")


def described(call: Call) -> Object:
    """A call without what differs between servers."""
    headers = {key.lower(): value for key, value in call.headers.items() if key.lower() in HEADERS}
    review = normalise(Answer(0, call.review, []))["body"]
    for key in ("object", "oldObject"):
        it = review.get("request", {}).get(key) or {}
        if it.get("kind") in UNMANAGED:
            it["metadata"].pop("managedFields", None)
    order = str(call.review.get("request", {}).get("name"))
    return chosen(
        {"path": call.path, "query": call.query, "headers": headers, "review": review, "order": order}
    )


def chosen(value: Any) -> Any:
    """A value without the ports and the names that the server has chosen."""
    if isinstance(value, str):
        for pattern, replacement in CHOSEN:
            value = pattern.sub(replacement, value)
        return value
    if isinstance(value, dict):
        return {key: chosen(item) for key, item in value.items()}
    if isinstance(value, list):
        return [chosen(item) for item in value]
    return value


def labelled(
    kind: str, name: str, api_version: str = "v1", labels: dict[str, str] | None = None, **fields: Any
) -> Object:
    """An object that the webhooks of a flow match."""
    metadata = {"name": name, "labels": {"flow": "yes", **(labels or {})}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
