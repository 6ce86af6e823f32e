"""The persisted formats on objects: a contract with operators of other versions."""

import base64
import hashlib
import json

import kopf
import pytest

DIGEST_CASES = [
    ("create_fn/sub1", ["create_fn.sub1"]),
    ("outer.<locals>.fn", ["outer._locals_.fn"]),
    ("a" * 47, ["a" * 47, "a" * 39 + "-L2I79Q"]),
    ("a" * 63, ["a" * 63, "a" * 39 + "-LcrRHA"]),
    ("a" * 64, ["a" * 56 + "-5Keq3A", "a" * 39 + "-5Keq3A"]),
    (
        "some/very/long/handler/id/that/exceeds/sixty/three/characters/for/sure",
        [
            "some.very.long.handler.id.that.exceeds.sixty.three.chara-Ft7QHA",
            "some.very.long.handler.id.that.exceeds.-C8rtqw",
        ],
    ),
]
RECORD = dict(started="s", stopped=None, purpose="create", retries=1, success=False, failure=False)


@pytest.mark.contract("engine 7.2", "observed 1")
@pytest.mark.parametrize("key, names", DIGEST_CASES)
def test_names_of_annotations(key, names):
    storage = kopf.AnnotationsProgressStorage()
    assert list(storage.make_keys(key)) == [f"kopf.zalando.org/{name}" for name in names]
    assert len(list(kopf.AnnotationsProgressStorage(v1=False).make_keys(key))) == 1


@pytest.mark.contract("engine 7.2")
def test_replica_sets_do_not_share_names_with_their_deployments():
    body = kopf.Body({"kind": "ReplicaSet", "metadata": {"ownerReferences": [{"kind": "Deployment"}]}})
    storage = kopf.AnnotationsProgressStorage()
    assert list(storage.make_keys("fn", body=body)) == ["kopf.zalando.org/fn-ofDRS"]


@pytest.mark.contract("api 1.8")
def test_prefixes_are_mandatory_and_limited():
    with pytest.raises(ValueError, match=r"Annotations storages must be prefixed."):
        kopf.AnnotationsDiffBaseStorage(prefix="")
    with pytest.warns(UserWarning, match="The annotations prefix is too long"):
        kopf.AnnotationsDiffBaseStorage(prefix="x" * 190)


@pytest.mark.contract("api 1.8")
def test_progress_in_annotations():
    body, patch = kopf.Body({}), kopf.Patch()
    kopf.AnnotationsProgressStorage(prefix="my.org").store(key="h", record=RECORD, body=body, patch=patch)
    encoded = '{"started":"s","purpose":"create","retries":1,"success":false,"failure":false}'
    assert patch == {"metadata": {"annotations": {"my.org/h": encoded, "my.org/kopf-managed": "yes"}}}
    stored = kopf.Body(patch)
    assert kopf.AnnotationsProgressStorage(prefix="my.org").fetch(key="h", body=stored)["retries"] == 1


def test_purging_removes_what_is_stored_and_forgets_what_is_about_to_be():
    storage, patch = kopf.SmartProgressStorage(), kopf.Patch()
    body = kopf.Body({"metadata": {"annotations": {"kopf.zalando.org/old": "{}"}}})
    storage.store(key="new", record=RECORD, body=body, patch=patch)
    storage.purge(key="new", body=body, patch=patch)
    storage.purge(key="old", body=body, patch=patch)
    assert patch == {"metadata": {"annotations": {"kopf.zalando.org/old": None}}}


@pytest.mark.contract("engine 7.3")
def test_smart_storage_only_reads_and_purges_the_status():
    storage, patch = kopf.SmartProgressStorage(), kopf.Patch()
    body = kopf.Body({"status": {"kopf": {"progress": {"a/b": RECORD}}}})
    assert storage.fetch(key="a/b", body=body) == RECORD
    storage.touch(body=body, patch=patch, value="v")
    storage.store(key="a/b", record=RECORD, body=body, patch=patch)
    assert "status" not in patch
    storage.purge(key="a/b", body=body, patch=patch)
    assert patch["status"] == {"kopf": {"progress": {"a/b": None}}}


@pytest.mark.contract("api 1.8")
def test_status_fields_are_settable_and_formatted():
    storage = kopf.StatusProgressStorage(name="op")
    assert storage.field == ("status", "op", "progress")
    storage.field = "status.{name}.x"
    assert storage.field == ("status", "op", "x")


@pytest.mark.contract("engine 7.4")
@pytest.mark.parametrize(
    "storage",
    [
        kopf.AnnotationsDiffBaseStorage(),
        kopf.StatusDiffBaseStorage(),
        kopf.MultiDiffBaseStorage([kopf.AnnotationsDiffBaseStorage(), kopf.StatusDiffBaseStorage()]),
    ],
)
def test_essences_come_back_as_they_were_stored(storage):
    patch, essence = kopf.Patch(), {"spec": {"é": 1}}
    storage.store(body=kopf.Body({}), patch=patch, essence=essence)
    assert storage.fetch(body=kopf.Body(patch)) == essence


def _digest_of(value):
    digest = hashlib.blake2b(json.dumps(value).encode(), digest_size=16).digest()
    return {"kopf.dev/digest": base64.b64encode(digest).decode().rstrip("=")}


def test_a_condensed_essence_is_read_with_the_unchanged_values_of_the_object():
    """As the engine has stored it, before the operator got another storage."""

    class Own(kopf.AnnotationsDiffBaseStorage):
        def fetch(self, *, body):
            essence = super().fetch(body=body)
            return essence and {**essence, "size": essence["spec"]["size"]}

    large, changed, note, seen = (letter * 300 for letter in "xyzw")
    key = "kopf.zalando.org/last-handled-configuration"
    condensed = {
        "spec": {"size": 1, "kept": _digest_of(large), "changed": _digest_of(large)},
        "metadata": {"annotations": {"note": _digest_of(note)}},
        "status": {"seen": _digest_of(seen)},
    }
    body = kopf.Body(
        {
            "spec": {"size": 2, "kept": large, "changed": changed},
            "status": {"seen": seen, "other": 1},
            "metadata": {
                "name": "x",
                "annotations": {"note": note, key: json.dumps({"kopf.dev/condensed": condensed})},
            },
        }
    )
    expected = {
        "spec": {"size": 1, "kept": large},
        "metadata": {"annotations": {"note": note}},
        "status": {"seen": seen},
    }
    assert kopf.AnnotationsDiffBaseStorage().fetch(body=body) == expected
    assert Own().fetch(body=body) == {**expected, "size": 1}


@pytest.mark.parametrize(
    "condensed", [5, None, {}, {"metadata": 5}, {"metadata": _digest_of("x"), "spec": []}]
)
def test_malformed_condensed_essences_are_read(condensed):
    key = "kopf.zalando.org/last-handled-configuration"
    text = json.dumps({"kopf.dev/condensed": condensed})
    body = kopf.Body({"metadata": {"name": "x", "annotations": {key: text, "a": "b"}}})
    kopf.AnnotationsDiffBaseStorage().fetch(body=body)


def test_the_last_handled_state_is_read_from_the_first_annotation_that_is_not_null():
    storage = kopf.AnnotationsDiffBaseStorage(prefix="p" * 30, key="k" * 50)
    first, second = storage.make_keys("k" * 50)
    body = kopf.Body({"metadata": {"annotations": {first: "null", second: '{"spec": {}}'}}})
    assert storage.fetch(body=body) == {"spec": {}}


@pytest.mark.contract("engine 4.1")
def test_essence_is_the_intent_of_the_author():
    annotations = {
        "keep/it": "1",
        "kopf.zalando.org/h": "{}",
        "x.kopf.zalando.org/h": "{}",
        "my.org/kopf-managed": "yes",
        "my.org/h": "{}",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    raw = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "n", "labels": {}, "annotations": annotations},
        "spec": {"a": None, "b": []},
        "data": {},
        "status": {"x": 1, "y": 2},
    }
    storage = kopf.AnnotationsDiffBaseStorage(ignored_fields=["spec.a", "spec.nope.x"])
    essence = storage.build(body=kopf.Body(raw), extra_fields=["status.x"])
    assert essence == {
        "spec": {"b": []},
        "data": {},
        "metadata": {"annotations": {"keep/it": "1"}},
        "status": {"x": 1},
    }
    assert len(raw["metadata"]["annotations"]) == 6
