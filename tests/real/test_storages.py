"""Storages of users: the operator stores progress and diff-base only there."""

import json

import pytest

from tests.support import cluster as kube

PREAMBLE = """
import json
from calls import called
import kopf
"""

LABELLED = (
    PREAMBLE
    + """
class CustomProgress(kopf.ProgressStorage):
    \"\"\"Keeps everything in one annotation.\"\"\"

    KEY = 'storage.example.com/progress'
    TOUCH = 'storage.example.com/touch'

    def _load(self, body, patch):
        texts = [patch.meta.annotations.get(self.KEY), body.meta.annotations.get(self.KEY)]
        return json.loads(next((text for text in texts if text), '{}'))

    def _save(self, records, patch):
        patch.meta.annotations[self.KEY] = json.dumps(records) if records else None

    def fetch(self, *, key, body):
        return json.loads(body.meta.annotations.get(self.KEY, '{}')).get(key)

    def store(self, *, key, record, body, patch):
        known = {name: value for name, value in record.items() if value is not None}
        self._save({**self._load(body, patch), key: known}, patch)

    def purge(self, *, key, body, patch):
        records = self._load(body, patch)
        if key in records:
            del records[key]
            self._save(records, patch)

    def touch(self, *, body, patch, value):
        called('touch', value=value)
        if body.meta.annotations.get(self.TOUCH) != value:
            patch.meta.annotations[self.TOUCH] = value

    def clear(self, *, essence):
        essence = super().clear(essence=essence)
        self.remove_annotations(essence, {self.KEY, self.TOUCH})
        self.remove_empty_stanzas(essence)
        return essence

    def flush(self):
        called('flush')


class Notebook(kopf.DiffBaseStorage):
    \"\"\"Keeps the essence aside of the objects, in a file.\"\"\"

    def fetch(self, *, body):
        try:
            return json.load(open(body.meta.uid))
        except FileNotFoundError:
            return None

    def store(self, *, body, patch, essence):
        with open(body.meta.uid, 'w') as file:
            json.dump(essence, file)
        called('stored', essence=essence)


@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.progress_storage = CustomProgress()
    settings.persistence.diffbase_storage = Notebook()
"""
)


@pytest.mark.contract("engine 7.3")
def test_users_storages_keep_the_progress_and_the_essence(operator, shelf):
    code = (
        LABELLED
        + """
@kopf.on.create('parcels')
def create(retry, **_):
    called('create', retry=retry)
    if not retry:
        raise kopf.TemporaryError('once more', delay=0.2)

@kopf.on.create('parcels')
def another(**_):
    @kopf.subhandler(id='sub')
    def sub(retry, **_):
        if not retry:
            raise kopf.TemporaryError('later', delay=0.3)
        return 'done'

@kopf.on.update('parcels')
def update(old, new, diff, **_):
    called('update', old=old, new=new, diff=diff)

@kopf.on.resume('parcels')
def resume(**_):
    called('resume')
"""
    )
    run = operator(code)
    shelf.create("p1", {"size": 1}, labels={"a": "b"})
    shelf.wait("p1", lambda body: '"another/sub"' in str(body["metadata"].get("annotations")))
    run.wait_for_call("stored")
    done = {"another/sub": "done"}
    shelf.wait("p1", lambda body: "annotations" not in body["metadata"] and body.get("status") == done)
    assert [call.details["retry"] for call in run.called("create")] == [0, 1]
    assert run.called("flush") and run.called("touch")
    essence = {"spec": {"size": 1}, "metadata": {"labels": {"a": "b"}}}
    assert [call.details["essence"] for call in run.called("stored")] == [essence]

    shelf.patch("p1", {"spec": {"size": 2}})
    update = run.wait_for_call("update").details
    assert (update["old"]["spec"], update["new"]["spec"]) == ({"size": 1}, {"size": 2})
    assert update["diff"] == "(('change', ('spec', 'size'), 1, 2),)"
    run.wait_for_call("stored", count=2)
    assert run.stop() == 0

    # The stored state survives: there is no second creation.
    again = operator(code)
    again.wait_for_call("resume")
    assert not again.called("create") and not again.called("update")


def test_a_combination_with_a_users_storage_writes_to_both(operator, shelf):
    run = operator(
        LABELLED
        + """
@kopf.on.startup()
def combine(settings, **_):
    settings.persistence.diffbase_storage = kopf.MultiDiffBaseStorage(
        [Notebook(), kopf.AnnotationsDiffBaseStorage(prefix='both.example.com')])

@kopf.on.create('parcels')
def create(**_):
    pass
"""
    )
    shelf.create("p1", {"size": 1})
    key = "both.example.com/last-handled-configuration"
    body = shelf.wait("p1", lambda body: key in body["metadata"].get("annotations", {}))
    assert json.loads(body["metadata"]["annotations"][key]) == {"spec": {"size": 1}}
    assert body["metadata"]["annotations"]["both.example.com/kopf-managed"] == "yes"
    assert run.wait_for_call("stored").details["essence"] == {"spec": {"size": 1}}


def test_a_storage_that_raises_slows_down_its_object_only(operator, shelf):
    run = operator(
        LABELLED
        + """
class Moody(CustomProgress):
    def fetch(self, *, key, body):
        if body.meta.name == 'bad':
            raise RuntimeError('not in the mood')
        return super().fetch(key=key, body=body)

@kopf.on.startup()
def configure_moody(settings, **_):
    settings.persistence.progress_storage = Moody()

@kopf.on.create('parcels')
def create(name, **_):
    called('create', name=name)
"""
    )
    shelf.create("bad")
    run.wait_for_log(r"ERROR.*not in the mood")
    shelf.create("good")
    run.wait_for_call("create")
    assert {call.details["name"] for call in run.called("create")} == {"good"}


def test_deletion_handlers_work_with_users_storages(operator, shelf):
    run = operator(
        LABELLED
        + """
@kopf.on.delete('parcels')
def delete(retry, **_):
    called('delete', retry=retry)
    if not retry:
        raise kopf.TemporaryError('once more', delay=0.2)
"""
    )
    shelf.create("p1")
    shelf.wait("p1", lambda body: body["metadata"].get("finalizers"))
    run.wait_for_call("stored")
    shelf.delete("p1")
    shelf.wait_until_gone("p1")
    assert [call.details["retry"] for call in run.called("delete")] == [0, 1]
    assert kube.PREFIX + "last-handled-configuration" not in run.log


@pytest.mark.contract("engine 15")
def test_settings_changed_by_a_handler_are_obeyed_from_then_on(operator, shelf):
    run = operator(
        PREAMBLE
        + """
SETTINGS = []

@kopf.on.startup()
def remember(settings, **_):
    SETTINGS.append(settings)

@kopf.on.create('parcels')
def create(name, retry, **_):
    if name == 'hasty':
        SETTINGS[0].execution.default_backoff = 0.1
        return
    called('create', retry=retry)
    if retry < 2:
        raise ValueError('arbitrary')
"""
    )
    shelf.create("hasty")
    shelf.wait_until_handled("hasty")
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    assert [call.details["retry"] for call in run.called("create")] == [0, 1, 2]
