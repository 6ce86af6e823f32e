"""The parts of a recording that must be equal: without names, times and ids that differ between runs."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from .scenario import Scenario

Object = dict[str, Any]

NOISY_META = {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"}
KOPF_KEY = re.compile(r"kopf|last-handled|touch-dummy", re.IGNORECASE)
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?P<fraction>\.\d+)?(?P<zone>Z|[+-]\d\d:\d\d)?")
PATTERNS = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\b\d+ days?, \d+:\d\d:\d\d(\.\d+)?|\b\d+:\d\d:\d\d\.\d+"), "<duration>"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d{4,5}"), r"\1:<port>"),
    (re.compile(r"0x[0-9a-f]{6,}"), "<address>"),
    (re.compile(r"LS0tLS1CRUdJTiB[A-Za-z0-9+/=]+"), "<certificate>"),
    (re.compile(r'("?resourceVersion"?[:=] ?"?)\d+'), r"\1<rv>"),
]
# A marker that Kopf writes only to get a watch event later. Whether it is needed depends on timings.
TOUCHED = "/touch-dummy"
# Flags of a stop reason that name the progress of the stop, not its cause: they depend on timings.
STOP_PROGRESS = {"DONE", "DAEMON_SIGNALLED", "DAEMON_CANCELLED", "DAEMON_ABANDONED"}
# Writes whose number depends on time, such as keep-alives, or on changes by other runs in the cluster.
TIMED_WRITES = [r"/(cluster)?kopfpeerings/", r"webhookconfigurations"]
MAX_TEXT = 1500
# The parts of a call that are not compared as they are.
RAW_KEYS = {
    "at",
    "kwargs",
    "body",
    "resource",
    "views",
    "diff",
    "operator",
    "old",
    "new",
    "name",
    "namespace",
}


def drop(value: Any, path: list[str]) -> None:
    """Remove the field, in all items of the lists on the way to it."""
    if isinstance(value, list):
        for item in value:
            drop(item, path)
    elif isinstance(value, dict) and path[1:]:
        drop(value.get(path[0]), path[1:])
    elif isinstance(value, dict):
        value.pop(path[0], None)


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all fields that are not non-empty dicts."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    else:
        yield path


def is_touch(body: Any) -> bool:
    """Whether the patch changes only Kopf's marker for a later watch event."""
    return isinstance(body, dict) and all(
        path and (path[-1].endswith(TOUCHED) or (path[0] == "status" and path[-1] == "dummy"))
        for path in leaves(body)
    )


def ordered(values: Any) -> list[Any]:
    return sorted(values, key=lambda value: json.dumps(value, sort_keys=True))


def family_of(call: Object) -> str:
    """The family of handlers, derived from the names of the keyword arguments."""
    given = set(call.get("kwargs", ()))
    for name, family in [
        ("stopped", "background"),
        ("event", "events"),
        ("operation", "admission"),
        ("reason", "changes"),
        ("body", "indexing"),
    ]:
        if name in given:
            return family
    return "calls"


class Normalizer:
    """The sections of one recording, which are equal if both Kopfs behave the same."""

    def __init__(self, scenario: Scenario, recording: Object) -> None:
        self._scenario, self._recording = scenario, recording
        names = recording["names"]
        self._names = [
            (names["workdir"], "<workdir>"),
            (names["folder"], "<scenario>"),
            (names["proxy"], "<server>"),
            (names["ns"], "<ns>"),
            (names["group"], "<group>"),
            (names["token"], "<token>"),
        ]

    # --- values

    def text(self, value: str) -> str:
        for name, placeholder in self._names:
            value = value.replace(name, placeholder)
        value = TIME.sub(lambda m: f"<time.{len(m['fraction'] or '.') - 1}{m['zone'] or ''}>", value)
        for pattern, placeholder in PATTERNS:
            value = pattern.sub(placeholder, value)
        if len(value) > MAX_TEXT:
            digest = hashlib.sha256(value.encode()).hexdigest()[:12]
            value = f"{value[:60]}… <{len(value)} characters, {digest}>"
        return value

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            if value.get("op") == "test" and value.get("path") == "/metadata/resourceVersion":
                return {"op": "test", "path": value["path"], "value": "<rv>"}
            return {
                self.text(key): self.meta(item)
                if key == "metadata" and isinstance(item, dict)
                else self.value(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, str):
            if value[:1] in ("{", "["):
                try:
                    return {"<json>": self.value(json.loads(value))}
                except ValueError:
                    pass
            return self.text(value)
        return value

    def meta(self, meta: Object) -> Object:
        """The metadata without the fields that the server sets."""
        result = {self.text(key): self.value(value) for key, value in meta.items() if key not in NOISY_META}
        if result.get("deletionTimestamp"):
            result["deletionTimestamp"] = "<set>"
        if isinstance(annotations := result.get("annotations"), dict):
            result["annotations"] = {
                key: value for key, value in annotations.items() if not key.endswith(TOUCHED)
            }
        for key in ("labels", "annotations", "finalizers"):
            if key in result and not result[key]:
                del result[key]
        return result

    def object(self, body: Object) -> Object:
        result: Object = self.value(body)
        for path in self._scenario.ignored_fields:
            drop(result, path.split("."))
        return result

    def body(self, body: Object, *, stable: bool) -> Object:
        """An object as a handler received it; if `stable`, only the parts that do not depend on timings."""
        body = self.object(body)
        meta = body.get("metadata", {})
        annotations, status = dict(meta.get("annotations") or {}), body.get("status")
        result = {
            "spec": body.get("spec"),
            "data": body.get("data"),
            "labels": meta.get("labels"),
            "deletion": meta.get("deletionTimestamp"),
        }
        if stable:
            annotations = {key: value for key, value in annotations.items() if not KOPF_KEY.search(key)}
            if isinstance(status, dict):
                status = {key: value for key, value in status.items() if key != "kopf"}
        else:
            result |= {"finalizers": meta.get("finalizers"), "owners": meta.get("ownerReferences")}
        result |= {"annotations": annotations, "status": status}
        return {key: value for key, value in result.items() if value}

    # --- sections

    def sections(self) -> Object:
        """All sections by their names."""
        return {
            "process": self.process(),
            "traces": self.traces(),
            "signatures": self.signatures(),
            "objects": self.objects(),
            "events": self.events(),
            "requests": self.requests(),
            "logs": self.logs(),
        }

    def process(self) -> Object:
        recording = self._recording
        return {
            "failure": self.text(recording["failure"] or ""),
            "exits": recording["exits"],
            "observations": [[label, self.value(value)] for label, value in recording["observations"]],
        }

    def traces(self) -> Object:
        """The calls of handlers, in their order per object; those of some families, per handler."""
        unordered = self._scenario.unordered
        streams: dict[str, list[Object]] = defaultdict(list)
        to_sort = set()
        calls: dict[str, int] = defaultdict(int)
        for call in self._recording["traces"]:
            fn = call["fn"]
            calls[fn] += 1
            if calls[fn] > self._scenario.trace_limits.get(fn, calls[fn]):
                continue
            family, record = family_of(call), self._call(call)
            place = f"{call.get('namespace') or ''}/{call['name']}" if call.get("name") else "-"
            plural = (call.get("resource") or {}).get("plural") or ""
            operator = f"{call['operator']}: " if "operator" in call else ""
            is_shared = family == "changes" and fn not in unordered
            key = self.text(f"{operator}{plural} {place} {family}{'' if is_shared else f' {fn}'}")
            if fn in unordered:
                to_sort.add(key)
            stream = streams[key]
            # The server may merge watch events of the same state.
            is_repeated = family in ("events", "indexing") and stream and stream[-1] == record
            if not is_repeated and not (fn in self._scenario.merged and record in stream):
                stream.append(record)
        return {key: ordered(stream) if key in to_sort else stream for key, stream in streams.items()}

    def _call(self, call: Object) -> Object:
        """The comparable parts of a call."""
        family = family_of(call)
        record = {key: self.value(value) for key, value in call.items() if key not in RAW_KEYS}
        for key in ("old", "new"):
            if key in call:
                value = call[key]
                record[key] = self.object(value) if isinstance(value, dict) else self.value(value)
        if "stopped" in call:
            reason = [flag for flag in call["stopped"]["reason"] if flag not in STOP_PROGRESS]
            record["stopped"] = {"set": call["stopped"]["set"], "reason": reason}
        if "diff" in call:
            record["diff"] = ordered(
                self.value(item) for item in call["diff"] or () if not self._is_noise(item[1])
            )
        if isinstance(call.get("body"), dict):
            body = self.body(call["body"], stable=family != "changes")
            if family == "background":
                body = {key: body[key] for key in ("spec", "labels") if key in body}
            record["body"] = body
        wrong = [key for key, is_same in call.get("views", {}).items() if not is_same]
        if wrong and family != "background":
            record["views that differ from the body"] = wrong
        return record

    @staticmethod
    def _is_noise(path: list[str]) -> bool:
        return len(path) > 1 and path[0] == "metadata" and path[1] in NOISY_META

    def signatures(self) -> Object:
        """For each handler, the names of its keyword arguments, and the resources."""
        found: dict[str, dict[str, set[str]]] = defaultdict(lambda: {"kwargs": set(), "resources": set()})
        for call in self._recording["traces"]:
            if "kwargs" in call:
                found[call["fn"]]["kwargs"].add(json.dumps(call["kwargs"]))
            if "resource" in call:
                resource = {
                    key: sorted(value) if isinstance(value, list) else value
                    for key, value in self.value(call["resource"]).items()
                }
                found[call["fn"]]["resources"].add(json.dumps(resource, sort_keys=True))
        return {
            fn: {key: [json.loads(value) for value in sorted(values)] for key, values in sets.items()}
            for fn, sets in found.items()
        }

    def objects(self) -> list[Object]:
        """The objects after each step."""
        return [
            {
                "step": step["label"],
                "objects": {self.text(key): self.object(body) for key, body in step["objects"].items()},
            }
            for step in self._recording["steps"]
        ]

    def events(self) -> Object:
        """The Kubernetes events after the last step, without their counts and order."""
        result: dict[str, set[str]] = defaultdict(set)
        for event in self._recording["steps"][-1]["events"] if self._recording["steps"] else []:
            target = event.get("involvedObject", {})
            reporter = event.get("reportingComponent") or event.get("source", {}).get("component")
            message = self.text(event.get("message") or "")
            record = [event.get("type"), event.get("reason"), message, reporter, event.get("action")]
            place = self.text(f"{target.get('kind')} {target.get('namespace')}/{target.get('name')}")
            result[place].add(json.dumps(record))
        return {key: [json.loads(value) for value in sorted(values)] for key, values in result.items()}

    # --- requests and logs

    def requests(self) -> Object:
        """The writes in their order, per object."""
        result: dict[str, list[Object]] = defaultdict(list)
        for request in self._compared_requests():
            body = self.value(request["body"])
            if isinstance(body, dict) and request["path"].endswith("/events"):
                body = {key: body.get(key) for key in ("type", "reason", "message")}
            result[self._target(request)].append(
                {
                    "request": f"{request['method']} {self.text(request['path'])}",
                    "type": request["type"],
                    "body": body,
                    "status": request["status"],
                }
            )
        return {
            target: ordered(requests) if target.startswith("events for ") else requests
            for target, requests in result.items()
        }

    def request_counts(self) -> dict[str, list[int]]:
        """For each object, the number of successful writes with content, and of those that only touch it."""
        result: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for request in self._compared_requests():
            if (request["status"] or 0) < 400:
                result[self._target(request)][is_touch(request["body"])] += 1
        return dict(result)

    def _compared_requests(self) -> Iterator[Object]:
        ignored = [*TIMED_WRITES, *self._scenario.ignored_requests]
        for request in self._recording["requests"]:
            if not any(re.search(pattern, request["path"]) for pattern in ignored):
                yield request

    def _target(self, request: Object) -> str:
        """The object of a request."""
        path = self.text(request["path"])
        body = request["body"] if isinstance(request["body"], dict) else {}
        if path.endswith("/events"):
            return f"events for {self.text(body.get('involvedObject', {}).get('name') or '?')}"
        if request["method"] == "POST" and (name := (body.get("metadata") or {}).get("name")):
            path += f"/{self.text(name)}"
        return path.removesuffix("/status")

    def logs(self) -> Object:
        """The log lines per object, without repetitions."""
        result: dict[str, list[str]] = defaultdict(list)
        for operator, text in self._recording["logs"].items():
            for line in text.splitlines():
                place, message = self._log_line(line)
                lines = result[self.text(f"{operator}: {place}")]
                if not lines or lines[-1] != message:
                    lines.append(message)
        return dict(result)

    def _log_line(self, line: str) -> tuple[str, str]:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict) or "message" not in entry:
            return "plain text", self.text(line)
        ref = entry.get("object") or {}
        place = f"{ref.get('kind')} {ref.get('namespace')}/{ref.get('name')}" if ref else "the operator"
        return place, f"{entry.get('severity')}: {self.text(str(entry['message']))}"
