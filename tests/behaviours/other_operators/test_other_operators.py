"""Two operators of the same objects: one warning per operator and kind.

There is none if they coordinate through peering, or do not share their state.
"""

import itertools
import threading
import time

import kopf
import pytest

from tests.support.crds import PEERINGS

pytestmark = pytest.mark.kopf_embedded_only
WARNING = "Another operator handles objects of {}, too"
PEERING = {"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"}}
LIMIT = 60


class Crew:
    """Two operators with the same handlers; those of the slow one end after those of the other."""

    def __init__(self, cluster, make, last_key, caplog):
        self.cluster, self.make, self.last, self.caplog = cluster, make, last_key, caplog
        self.calls = []
        self.ended = threading.Condition()
        self.names = (f"object-{number}" for number in itertools.count())

    def handlers_of(self, operator, resource="widgets", handler="make"):
        def handlers():
            @kopf.on.create(resource, id=handler)
            def create(name, body, **_):
                if body["metadata"]["labels"]["slow"] == operator:
                    self.cluster.wait_for(resource, name, self.is_handled, timeout=LIMIT)
                with self.ended:
                    self.calls.append((operator, name))
                    self.ended.notify_all()

        return handlers

    def is_handled(self, body):
        return self.last in body["metadata"].get("annotations", {})

    def warnings(self, kind="Widget"):
        return sum(WARNING.format(kind) in line for line in self.caplog.messages)

    def handle(self, slow):
        """Creates a widget, and waits until both operators have handled it."""
        name = next(self.names)
        self.make(name, labels={"slow": slow})
        self.wait_for_calls(name)

    def wait_for_calls(self, name):
        with self.ended:
            both = {("one", name), ("two", name)}
            assert self.ended.wait_for(lambda: both <= set(self.calls), LIMIT), self.calls

    def handle_until_warned(self, slow, count):
        """Sooner or later, the slow operator receives the write of the other before its handler ends."""
        deadline = time.monotonic() + LIMIT
        while self.warnings() < count:
            assert time.monotonic() < deadline, "no warning"
            self.handle(slow)


def wait_for_watches(*operators):
    """Wait for the first listings: an operator that lists a handled object calls no handlers for it."""
    for operator in operators:
        operator.wait_until_idle()


@pytest.fixture
def crew(cluster, make, last_key, caplog):
    return Crew(cluster, make, last_key, caplog)


def test_two_operators_of_the_same_objects_warn_once_each(crew, kopf_operator):
    operators = [kopf_operator(crew.handlers_of(name)) for name in ("one", "two")]
    wait_for_watches(*operators)
    crew.handle_until_warned("one", 1)
    for _ in range(3):
        crew.handle("one")
    assert crew.warnings() == 1, "one warning per operator"
    crew.handle_until_warned("two", 2)
    for slow in ("one", "two", "one", "two"):
        crew.handle(slow)
    for operator in operators:
        operator.wait_until_idle()
    assert crew.warnings() == 2


def test_each_kind_has_its_own_warning(crew, kopf_operator):
    def handlers_of(name):
        def handlers():
            crew.handlers_of(name)()
            crew.handlers_of(name, resource="configmaps", handler="read")()

        return handlers

    wait_for_watches(*(kopf_operator(handlers_of(name)) for name in ("one", "two")))
    crew.handle_until_warned("one", 1)
    deadline = time.monotonic() + LIMIT
    while not crew.warnings("ConfigMap"):
        assert time.monotonic() < deadline, "no warning"
        name = next(crew.names)
        meta = {"name": name, "labels": {"slow": "one"}}
        crew.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {}})
        crew.wait_for_calls(name)
    assert (crew.warnings(), crew.warnings("ConfigMap")) == (1, 1)


def test_different_storages_are_not_reported(crew, kopf_operator):
    settings = kopf.OperatorSettings()
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="two.example.com")
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="two.example.com")
    first = kopf_operator(crew.handlers_of("one"))
    wait_for_watches(first, kopf_operator(crew.handlers_of("two"), settings=settings))
    for _ in range(5):
        crew.handle("two")
    assert crew.warnings() == 0


def last_state(body, last_key):
    """The last handled state as text; empty if there is none."""
    return body["metadata"].get("annotations", {}).get(last_key, "")


def test_successors_are_not_reported(crew, kopf_operator, cluster, make, handled, last_key):
    attempts = []

    def handlers():
        @kopf.on.create("widgets")
        @kopf.on.update("widgets")
        def make_in_two_attempts(name, retry, **_):
            attempts.append(name)
            if retry == 0:
                raise kopf.TemporaryError("not yet", delay=0.1)

        @kopf.on.resume("widgets")
        def resume(**_):
            pass

    for size in (1, 2, 3):
        operator = kopf_operator(handlers)
        if size == 1:
            make("one")
        else:
            cluster.patch("widgets", "one", {"spec": {"size": size}})
        # Until then, the widget has the state of the previous operator.
        handled(condition=lambda body, size=size: f'"size":{size}' in last_state(body, last_key))
        operator.wait_until_idle()
        operator.stop()
    assert attempts == ["one"] * 6
    assert crew.warnings() == 0


def test_peers_are_not_reported(crew, kopf_operator, cluster):
    cluster.apply(PEERINGS)
    cluster.create(PEERING)
    options = {"standalone": False}
    first = kopf_operator(crew.handlers_of("one"), priority=1, identity="one", **options)
    first.wait_until_idle()
    name = next(crew.names)
    # The first operator is called, and ends after the second one, which has a higher priority.
    crew.make(name, labels={"slow": "one"})
    kopf_operator(crew.handlers_of("two"), priority=2, identity="two", **options)
    crew.wait_for_calls(name)
    assert crew.warnings() == 0
