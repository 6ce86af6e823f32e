"""The order and the arguments of calls of the user's storages."""

import logging
from types import SimpleNamespace

import kopf
import pytest
from kopf._objects.bodies import Body
from kopf._objects.patches import Patch
from kopf._runtime import custom_storages

RAW = {
    "metadata": {"name": "x", "labels": {"a": "b"}, "annotations": {"progress": "1"}},
    "spec": {"x": 1},
    "status": {"y": 2},
}


class Storages(kopf.ProgressStorage):
    """A progress storage that records its calls, and creates a diff-base storage that does the same."""

    def __init__(self):
        super().__init__()
        self.calls = []
        outer = self

        class Essences(kopf.DiffBaseStorage):
            def fetch(self, *, body):
                outer.calls.append("fetch essence")
                return {"spec": {"x": 0}, "metadata": {"annotations": {"progress": "0"}}}

            def store(self, *, body, patch, essence):
                outer.calls.append(("store essence", essence))
                patch.status["last"] = essence

        self.essences = Essences()

    def fetch(self, *, key, body):
        self.calls.append(("fetch", key))
        return {"retries": 1} if key == "known" else None

    def store(self, *, key, record, body, patch):
        self.calls.append(("store", key, record))
        patch.status[key] = record

    def purge(self, *, key, body, patch):
        self.calls.append(("purge", key))

    def touch(self, *, body, patch, value):
        self.calls.append(("touch", value))

    def flush(self):
        self.calls.append("flush")

    def clear(self, *, essence):
        essence = super().clear(essence=essence)
        self.remove_annotations(essence, {"progress"})
        self.remove_empty_stanzas(essence)
        return essence


@pytest.fixture
def storages():
    return Storages()


@pytest.fixture
def settings(storages):
    settings = kopf.OperatorSettings()
    settings.persistence.progress_storage = storages
    settings.persistence.diffbase_storage = storages.essences
    return settings


@pytest.fixture
def cycle():
    body = Body(RAW)
    return SimpleNamespace(body=body, patch=Patch(body=body), essence=None, logger=logging.getLogger("x"))


def test_recalling(storages, settings, cycle):
    step = SimpleNamespace(ids=["known", "unknown"], extra_fields=[("status", "y")])
    old, new, records = custom_storages.fetch_state(step, cycle, settings)
    assert old == {"spec": {"x": 0}}
    assert new == {"spec": {"x": 1}, "metadata": {"labels": {"a": "b"}}, "status": {"y": 2}}
    assert records == {"known": {"retries": 1}}
    assert cycle.essence is new and not cycle.patch


@pytest.mark.contract("api 1.8")
def test_keeping(storages, settings, cycle):
    cycle.essence = {"spec": {"x": 1}}
    records = [("a", {"retries": 1}), ("b", None)]
    custom_storages.store_state(
        SimpleNamespace(records=records, essence=True, written=False), cycle, settings
    )
    assert storages.calls == [
        ("store", "a", {"retries": 1}),
        ("purge", "b"),
        "flush",
        ("store essence", {"spec": {"x": 1}}),
        ("touch", None),
    ]
    assert cycle.patch == {"status": {"a": {"retries": 1}, "last": {"spec": {"x": 1}}}}


def test_nothing_is_touched_if_nothing_is_written(storages, settings, cycle):
    custom_storages.store_state(
        SimpleNamespace(records=[("b", None)], essence=False, written=False), cycle, settings
    )
    assert storages.calls == [("purge", "b"), "flush"]
    custom_storages.store_state(SimpleNamespace(records=[], essence=False, written=True), cycle, settings)
    assert storages.calls[2:] == [("touch", None)]
