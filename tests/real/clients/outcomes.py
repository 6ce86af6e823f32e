"""The outcomes of a client's requests, in a form that is equal on all servers."""

import re
import time
from collections.abc import Callable
from typing import Any

TIMEOUT = 30.0
TIMES = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?")
UIDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
AGES = re.compile(r"\b(?:\d+[smh])+\b")
# The errors of a custom object; kube-apiserver validates the fields of an object in a random order.
ERRORS = re.compile(r"(?<=\.flows\.testing\.kopf\.dev )(?P<name>.* is invalid: )\[(?P<errors>.*)\]", re.S)
NEXT_ERROR = re.compile(r", (?=[\w.<>\[\]]+: (?:Invalid|Required|Unsupported|Duplicate|Forbidden|Too) )")
# The same as kubectl prints it.
LISTED_ERRORS = re.compile(r"(?<=^The Gadget )(?P<name>.* is invalid: \n)(?P<errors>(?:\* .*\n)+)")
ADDRESSES = re.compile(r"(?<=127\.0\.0\.1:)\d+")
RECORDED_VERSIONS = re.compile(r"(?<=the ResourceVersion in record \()\d+")
SERVICE_ADDRESSES = re.compile(r"\b10(?:\.\d{1,3}){3}\b")
# Values that the server chooses.
CHOSEN = {"resourceVersion", "continue"}


class Outcomes:
    """Steps of a flow, with what the client has returned or raised."""

    def __init__(self, error_of: Callable[[Exception], dict[str, Any] | None]) -> None:
        """`error_of` returns the error of an exception of the client, or nothing for other exceptions."""
        self.steps: dict[str, Any] = {}
        self._error_of = error_of

    def step(self, name: str, call: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """Call the client, and record the outcome; the returned object, or nothing after an error."""
        assert name not in self.steps, name
        try:
            result = call(*args, **options)
        except Exception as error:
            self.steps[name] = {"error": normalised(self._described(error))}
            return None
        self.steps[name] = normalised(result)
        return result

    def until(self, name: str, call: Callable[[], Any], *, fails: bool = False) -> None:
        """Repeat the request until it succeeds, or until it fails, and record the last outcome."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                outcome, failed = call(), False
            except Exception as error:
                outcome, failed = {"error": self._described(error)}, True
            if failed == fails:
                self.steps[name] = normalised(outcome)
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name}: {outcome}")

    def _described(self, error: Exception) -> dict[str, Any]:
        described = self._error_of(error)
        if described is None:
            raise error
        return described


def normalised(value: Any, key: str = "") -> Any:
    """The value without the server's choices, and with objects and managers in order."""
    if isinstance(value, dict):
        items = {
            UIDS.sub("<uid>", name): normalised(item, name)
            for name, item in value.items()
            if item is not None
        }
        if "causes" in items and str(items.get("group")).endswith(".flows.testing.kopf.dev"):
            items["causes"].sort(key=lambda it: (it.get("field", ""), it.get("message", "")))
        return items
    if isinstance(value, list | tuple):
        items = [normalised(item) for item in value]
        if key == "managedFields":
            items.sort(key=lambda it: (it.get("manager"), it.get("operation"), it.get("subresource", "")))
        if key == "items":
            items.sort(key=lambda it: it["metadata"]["name"])
        return items
    if key in CHOSEN and value:
        return f"<{key}>"
    if isinstance(value, str):
        value = RECORDED_VERSIONS.sub("<version>", SERVICE_ADDRESSES.sub("<address>", value))
        value = ADDRESSES.sub("<port>", UIDS.sub("<uid>", TIMES.sub("<time>", value)))
        return LISTED_ERRORS.sub(_sorted_lines, ERRORS.sub(_sorted_errors, value))
    return value


def _sorted_errors(found: re.Match[str]) -> str:
    return f"{found['name']}[{', '.join(sorted(NEXT_ERROR.split(found['errors'])))}]"


def _sorted_lines(found: re.Match[str]) -> str:
    return found["name"] + "".join(sorted(found["errors"].splitlines(keepends=True)))


def table(text: str) -> list[list[str]]:
    """The rows of a printed table, without the widths of columns, and without ages."""
    return [re.split(r" {2,}", AGES.sub("<age>", line.strip())) for line in text.splitlines()]
