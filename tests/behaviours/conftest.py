"""Fixtures of the behaviour tests: a CRD, and an operator with the handlers of the test's folder.

They use only the public API, and run on any cluster: `pytest tests/behaviours --kopf-cluster=assets`.
"""

import pathlib
import threading
from collections.abc import Callable
from typing import Any

import kopf
import pytest

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.behaviours.example.com}
spec:
  group: behaviours.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd]}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          x-kubernetes-preserve-unknown-fields: true
          properties:
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
PREFIX = "kopf.zalando.org/"
LAST = PREFIX + "last-handled-configuration"
FINALIZER = PREFIX + "KopfFinalizerMarker"


class Calls:
    """The calls recorded by handlers. It is thread-safe, and tests can wait for calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.changed = threading.Condition()

    def append(self, call: tuple[Any, ...]) -> None:
        with self.changed:
            self.calls.append(call)
            self.changed.notify_all()


class Running:
    """The operator of a test, and the calls of its handlers."""

    def __init__(self, operator: Any, calls: Calls, memo: Any) -> None:
        self.operator, self._calls, self.memo = operator, calls, memo

    def of(self, handler: str) -> list[Any]:
        """The recorded values of the handler's calls, in order."""
        calls = list(self._calls.calls)
        return [call[1] if len(call) == 2 else call[1:] for call in calls if call[0] == handler]

    def until(self, handler: str, count: int = 1) -> None:
        """Wait until the handler has recorded this many calls."""
        with self._calls.changed:
            assert self._calls.changed.wait_for(lambda: len(self.of(handler)) >= count, timeout=60), (
                f"{handler} was not called {count} time(s): {self._calls.calls}"
            )

    def settle(self) -> None:
        self.operator.wait_until_idle()

    def stop(self) -> None:
        self.operator.stop()


@pytest.fixture(autouse=True)
def no_other_operators(request, caplog):
    """No operator takes its own writes, or those of its previous run, for those of another operator."""
    yield
    if request.path.parent.name != "other_operators":
        lines = [record.getMessage() for record in caplog.get_records("call")]
        assert not [line for line in lines if line.startswith("Another operator handles")]


@pytest.fixture
def cluster(kopf_cluster):
    kopf_cluster.apply(WIDGETS)
    return kopf_cluster


@pytest.fixture
def run(cluster, kopf_operator, request, tmp_path) -> Callable[..., Running]:
    """Starts the operator of the folder, or this one; its handlers note their calls in the shared memo."""
    handlers = pathlib.Path(request.path).with_name("handlers.py")

    def start(share: dict[str, Any] | None = None, source: str | None = None, **options: Any) -> Running:
        calls = Calls()
        options.setdefault("strict", not getattr(request.module, "HANDLERS_RAISE", False))
        memo = kopf.Memo(calls=calls, **(share or {}))
        file = handlers
        if source is not None:
            file = tmp_path / "handlers.py"
            file.write_text(source)
        return Running(kopf_operator(file, memo=memo, **options), calls, memo)

    return start


@pytest.fixture
def make(cluster) -> Callable[..., dict[str, Any]]:
    """Creates a widget."""

    def create(name: str = "one", spec: Any = None, **meta: Any) -> dict[str, Any]:
        return cluster.create(
            {
                "apiVersion": "behaviours.example.com/v1",
                "kind": "Widget",
                "metadata": {"name": name, **meta},
                "spec": spec if spec is not None else {"size": 1},
            }
        )

    return create


@pytest.fixture
def handled(cluster) -> Callable[..., dict[str, Any]]:
    """Waits until the widget is handled as it is now, with no progress left."""

    def is_handled(body: Any) -> bool:
        ours = [key for key in body["metadata"].get("annotations", {}) if key.startswith(PREFIX)]
        return ours == [LAST]

    def wait(name: str = "one", condition: Any = None) -> dict[str, Any]:
        if condition is not None:
            cluster.wait_for("widgets", name, condition)
        return cluster.wait_for("widgets", name, is_handled)

    return wait


@pytest.fixture
def last_key() -> str:
    return LAST


@pytest.fixture
def finalizer() -> str:
    return FINALIZER
