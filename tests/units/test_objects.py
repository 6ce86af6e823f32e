"""Views of bodies, memos, indices, credentials, errors."""

import copy
import json
import pickle
from collections.abc import Mapping

import kopf
import pytest
from kopf._objects.indices import Indexers

pytestmark = pytest.mark.contract("api 3.9")

RAW = {"spec": {"a": 1}, "metadata": {"name": "n", "labels": {"l": "v"}}}


class NativeLike(Mapping):
    """The native body: top-level values are created once, at the first access."""

    def __init__(self, raw):
        self.raw, self.touched = raw, []

    def __getitem__(self, key):
        value = self.raw[key]
        self.touched.append(key)
        return value

    def __iter__(self):
        return iter(self.raw)

    def __len__(self):
        return len(self.raw)


@pytest.mark.contract("api 3.2")
def test_bodies_equal_to_dicts_but_are_not_hashable():
    body = kopf.Body(RAW)
    assert body == RAW
    assert body == RAW
    assert repr(body) == repr(RAW)
    with pytest.raises(TypeError):
        hash(body)


@pytest.mark.contract("api E")
def test_views_are_the_same_at_each_access():
    body = kopf.Body(RAW)
    assert body.spec is body.spec
    assert body.meta is body.metadata
    assert body["spec"] is RAW["spec"]


@pytest.mark.contract("engine 0.2")
def test_absent_stanzas_look_empty_but_are_named_in_errors():
    status = kopf.Body({}).status
    assert (len(status), list(status), bool(status), status.get("x"), repr(status)) == (
        0,
        [],
        False,
        None,
        "{}",
    )
    with pytest.raises(KeyError, match="'status'"):
        status["x"]
    with pytest.raises(KeyError, match="'x'"):
        kopf.Body({"status": {}}).status["x"]


@pytest.mark.contract("engine 0.2")
def test_null_stanzas_are_type_errors():
    spec = kopf.Body({"spec": None}).spec
    with pytest.raises(TypeError, match="The structure is not a dict with field 'x': None"):
        spec.get("x")
    with pytest.raises(TypeError):
        len(spec)


@pytest.mark.contract("engine 0.2")
def test_views_follow_replaced_bodies():
    body = kopf.Body(RAW)
    spec, labels = body.spec, body.meta.labels
    body._replace_with({"spec": {"b": 2}})
    assert (spec, labels) == ({"b": 2}, {})


def test_only_touched_stanzas_of_native_objects_are_converted():
    native = NativeLike(RAW)
    body = kopf.Body(native)
    assert body.spec["a"] == 1
    assert set(native.touched) == {"spec"}


@pytest.mark.contract("api 3.2")
@pytest.mark.parametrize("source", [RAW, NativeLike(RAW)])
def test_bodies_are_copied_and_pickled(source):
    body = kopf.Body(source)
    for other in (copy.copy(body), copy.deepcopy(body)):
        assert type(other) is kopf.Body
        assert other == RAW
    assert pickle.loads(pickle.dumps(kopf.Body(RAW))).spec == {"a": 1}


@pytest.mark.contract("api 3.2")
def test_bodies_are_serialised_only_as_dicts():
    with pytest.raises(TypeError):
        json.dumps(kopf.Body(RAW))
    assert json.dumps(dict(kopf.Body(RAW)))


@pytest.mark.contract("engine 11", "api 3.7")
def test_memos_have_items_as_attributes():
    memo = kopf.Memo()
    memo.a = 1
    assert memo == {"a": 1}
    assert type(copy.copy(memo)) is type(copy.deepcopy(memo)) is kopf.Memo
    assert type(memo.copy()) is dict
    del memo.a
    with pytest.raises(AttributeError, match=r"^'a'$"):
        _ = memo.a


@pytest.mark.contract("engine 10")
def test_indices_keep_replace_and_discard_values_by_objects():
    indexers = Indexers()
    indexers.ensure(["by_name"])
    one, two = "ab"
    indexers.replace_in("by_name", one, {"k": 1, "z": 9})
    indexers.replace_in("by_name", two, {"k": 2})
    index = indexers.indices["by_name"]
    assert repr(index) == "{'k': [1, 2], 'z': [9]}"
    assert 2 in index["k"]
    indexers.replace_in("by_name", one, None)
    assert len(index["k"]) == 2
    indexers.replace_in("by_name", one, {"k": 3})
    assert sorted(index["k"]) == [2, 3]
    assert "z" not in index
    indexers.replace_in("by_name", one, {})
    indexers.discard(two)
    assert not index
    indexers.replace_in("by_name", one, "value")
    assert list(index[None]) == ["value"]


@pytest.mark.contract("api 3.9")
def test_stores_are_collections_and_nothing_more():
    indexers = Indexers()
    indexers.ensure(["i"])
    indexers.replace_in("i", "uid", 1)
    store = indexers["i"][None]
    assert store != [1]
    with pytest.raises(TypeError):
        store[0]
    with pytest.raises(TypeError, match="abstract"):
        kopf.Index()


def test_temporary_errors_have_delays():
    assert str(kopf.TemporaryError()) == "None"
    assert kopf.TemporaryError().delay == 60
    assert kopf.TemporaryError("m", 5).delay == 5
    assert kopf.TemporaryError("m", delay=None).args == ("m",)
    assert kopf.AdmissionError("m", 400).code == 400


@pytest.mark.contract("api 3.6")
def test_resources_are_identified_by_names():
    assert repr(kopf.Resource("", "v1", "pods")) == "pods.v1"
    assert kopf.Resource("g", "v1", "p", kind="A") == kopf.Resource("g", "v1", "p")
    assert (
        kopf.Resource("g", "v1", "p", namespaced=True).get_url(
            server="https://h/", namespace="n", name="x", subresource="status", params={"a": "b c"}
        )
        == "https://h/apis/g/v1/namespaces/n/p/x/status?a=b+c"
    )


@pytest.mark.contract("api 7.1")
@pytest.mark.parametrize(
    "fields, header",
    [
        (dict(username="u", password="p", token="t"), "Basic dTpw"),
        (dict(scheme="S", token="t"), "S t"),
        (dict(scheme="S"), "S"),
        (dict(token="t"), "Bearer t"),
        (dict(username="u"), None),
    ],
)
def test_headers_of_credentials(fields, header):
    assert kopf.ConnectionInfo(server="x", **fields).as_http_headers().get("Authorization") == header


@pytest.mark.contract("api 7.1")
def test_secrets_are_not_shown():
    info = kopf.ConnectionInfo(
        server="x", username="u", password="p@ss", token="t0ken", private_key_data="k3y"
    )
    assert "server='x', " in repr(info)
    assert not any(secret in repr(info) for secret in ("p@ss", "t0ken", "k3y"))


@pytest.mark.contract("api 7.1")
@pytest.mark.parametrize("name", ["ca", "certificate", "private_key"])
def test_paths_and_data_exclude_each_other(name):
    with pytest.raises(ValueError, match=r"path & data are set. Need only one."):
        kopf.ConnectionInfo(server="x", **{f"{name}_path": "a", f"{name}_data": "b"})
