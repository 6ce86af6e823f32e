"""Patches under construction, and the algebra of changes."""

import copy
import random

import kopf
import pytest
from kopf._objects import rules
from kopf._objects.diffs import diff, reduce


@pytest.mark.contract("engine 8.1")
def test_stanzas_are_created_when_written_to():
    patch = kopf.Patch()
    patch.spec["a"] = 1
    patch.meta.labels["l"] = None
    assert patch == {"spec": {"a": 1}, "metadata": {"labels": {"l": None}}}
    del patch.spec["a"]
    assert patch["spec"] == {}
    with pytest.raises(KeyError, match="status"):
        del patch.status["x"]


@pytest.mark.contract("api 3.3")
def test_functions_make_patches_truthful_but_not_longer():
    patch = kopf.Patch(fns=[len])
    assert (bool(patch), len(patch)) == (True, 0)
    assert kopf.Patch(patch, fns=[repr]).fns == [len, repr]
    assert repr(patch) == f"Patch(fns=[{len!r}])"
    patch.clear()
    assert not patch


@pytest.mark.contract("api 3.3")
def test_copies_of_patches():
    assert type(kopf.Patch().copy()) is type(kopf.Patch() | {}) is dict
    assert type(copy.copy(kopf.Patch())) is type(copy.deepcopy(kopf.Patch())) is kopf.Patch
    assert copy.deepcopy(kopf.Patch({"a": {}}, fns=[len])).fns == [len]


@pytest.mark.contract("engine 8.1")
@pytest.mark.parametrize(
    "patch, body, operations",
    [
        ({"spec": {"x": {"a": None}}}, {"spec": {"x": {"a": 1}}}, [{"op": "remove", "path": "/spec"}]),
        ({"spec": {"a": 1}}, {"spec": {"a": 1}}, []),
        ({"spec": {"a": None}}, {"spec": {}}, [{"op": "remove", "path": "/spec"}]),
        ({"spec": {"a": None}}, {"spec": {"b": 1}}, []),
        ({"spec": {"a": {"b": None}}}, {"spec": {"c": 1}}, []),
        ({"spec": {"a": {}}}, {"spec": {}}, []),
        ({"spec": {"a/b~": 1}}, {}, [{"op": "add", "path": "/spec", "value": {"a/b~": 1}}]),
        ({"spec": {"a": True}}, {"spec": {"a": 1}}, [{"op": "replace", "path": "/spec/a", "value": True}]),
        (
            {"spec": {"a": [1, 2, 3]}},
            {"spec": {"a": [1, 3]}},
            [{"op": "add", "path": "/spec/a/1", "value": 2}],
        ),
        (
            {"spec": {"a": {"b": 2}, "n": 1, "c": None}, "status": {"s": 1}},
            {"spec": {"a": {"b": 1}, "c": 3}},
            [
                {"op": "add", "path": "/status", "value": {"s": 1}},
                {"op": "remove", "path": "/spec/c"},
                {"op": "add", "path": "/spec/n", "value": 1},
                {"op": "replace", "path": "/spec/a/b", "value": 2},
            ],
        ),
    ],
)
def test_patches_as_operations(patch, body, operations):
    assert kopf.Patch(patch).as_json_patch(body) == operations


def test_operations_need_a_body():
    with pytest.raises(ValueError, match="without the original body as a reference"):
        kopf.Patch({"a": 1}).as_json_patch()
    assert kopf.Patch().as_json_patch() == []
    with pytest.raises(TypeError):
        kopf.Patch({"spec": {"a": 1}}).as_json_patch({"spec": None})


@pytest.mark.parametrize(
    ("patch", "body", "operations"),
    [
        ({"a": 2**64}, {}, [{"op": "add", "path": "/a", "value": 2**64}]),
        ({"a": 2**70 + 1}, {"a": 1}, [{"op": "replace", "path": "/a", "value": 2**70 + 1}]),
        ({"a": -(2**64)}, {"a": {"b": 1}}, [{"op": "replace", "path": "/a", "value": -(2**64)}]),
        ({"a/b~": {"c": [2**64]}}, {}, [{"op": "add", "path": "/a~1b~0", "value": {"c": [2**64]}}]),
        ({"a": [1, [5, 2**64]]}, {"a": [1, [5, 6]]}, [{"op": "replace", "path": "/a/1/1", "value": 2**64}]),
        ({"a": [1, 2**64, 3]}, {"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2**64}]),
    ],
)
def test_integers_of_operations_are_exact(patch, body, operations):
    found = kopf.Patch(patch).as_json_patch(body)
    assert repr(found) == repr(operations)


def test_operations_are_only_for_json():
    with pytest.raises(TypeError, match=r"set is not JSON serializable \(at spec.a\)"):
        kopf.Patch({"spec": {"a": {1}}}).as_json_patch({})


def apply(doc, operations):
    doc = {"": copy.deepcopy(doc)}
    for operation in operations:
        *path, last = [
            "",
            *(x.replace("~1", "/").replace("~0", "~") for x in operation["path"].split("/")[1:]),
        ]
        target = doc
        for key in path:
            target = target[int(key) if isinstance(target, list) else key]
        last = int(last) if isinstance(target, list) else last
        if operation["op"] == "remove":
            del target[last]
        elif operation["op"] == "add" and isinstance(target, list):
            target.insert(last, operation["value"])
        else:
            target[last] = operation["value"]
    return doc[""]


def some_document(rnd, depth=3):
    kind = rnd.choice("dls") if depth else "s"
    if kind == "d":
        return {
            key: some_document(rnd, depth - 1)
            for key in rnd.sample(["a", "b/c", "~d", ""], rnd.randint(0, 4))
        }
    if kind == "l":
        return [some_document(rnd, depth - 1) for _ in range(rnd.randint(0, 4))]
    return rnd.choice([None, True, False, 0, 1, 1.0, "x", "y"])


@pytest.mark.parametrize("seed", range(300))
def test_operations_lead_from_one_document_to_another(seed):
    rnd = random.Random(seed)
    old, new = some_document(rnd), some_document(rnd)
    result = apply(old, rules.json_patch(old, new))
    assert repr(sort(result)) == repr(sort(new))


def sort(doc):
    if isinstance(doc, dict):
        return {key: sort(doc[key]) for key in sorted(doc)}
    return [sort(item) for item in doc] if isinstance(doc, list) else doc


@pytest.mark.contract("api 3.4")
@pytest.mark.parametrize(
    "a, b, expected",
    [
        (None, None, ()),
        ({"a": 1}, {"a": True}, ()),
        ({"a": None}, {}, ()),
        (None, {"a": 1}, (("add", (), None, {"a": 1}),)),
        ({"a": 1}, None, (("remove", (), {"a": 1}, None),)),
        ({"a": [1]}, {"a": [2]}, (("change", ("a",), [1], [2]),)),
        ({"a": {"b": 1}}, {"a": 1}, (("change", ("a",), {"b": 1}, 1),)),
        (
            {"x": 1, "c": 1, "y": 1},
            {"c": 2, "b": 1, "a": 1},
            (
                ("add", ("a",), None, 1),
                ("add", ("b",), None, 1),
                ("remove", ("x",), 1, None),
                ("remove", ("y",), 1, None),
                ("change", ("c",), 1, 2),
            ),
        ),
    ],
)
def test_diffs(a, b, expected):
    assert diff(a, b) == expected


@pytest.mark.parametrize(
    "a, b, expected",
    [
        (None, {"spec": {"x": 1}}, (("add", (), None, 1),)),
        ({"spec": {"x": {"y": 1}}}, {"spec": {"x": {"y": 2}}}, (("change", ("y",), 1, 2),)),
        ({"other": 1}, {"other": 2}, ()),
    ],
)
def test_reduced_diffs(a, b, expected):
    assert reduce(diff(a, b), ("spec", "x")) == expected


@pytest.mark.contract("engine 4.2", "api 3.4")
def test_diffs_look_like_plain_tuples():
    changes = kopf.Diff([("add", ("x",), None, 1)])
    assert repr(changes) == "(('add', ('x',), None, 1),)"
    assert changes == [["add", ("x",), None, 1]]
    assert type(changes[:]) is tuple
    assert repr(kopf.DiffOperation.ADD) == "'add'"
    assert not kopf.Diff([])
