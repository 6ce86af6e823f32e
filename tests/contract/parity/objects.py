"""Claims about arguments of handlers: bodies, patches, diffs, memos, resources, indices, loggers, flags."""

import asyncio
import copy
import json
import logging
import pickle
from collections.abc import Collection, Hashable, Mapping, MutableMapping, Sequence

import kopf
from parity_runner import mro, outcome, outcomes, shown, warned

RAW = {
    "apiVersion": "v1",
    "kind": "K",
    "metadata": {
        "name": "n",
        "namespace": "ns",
        "uid": "u",
        "labels": {"l": "v"},
        "annotations": {"a": "b"},
        "creationTimestamp": "2020-01-01T00:00:00Z",
    },
    "spec": {"a": 1, "d": {"e": [1, 2]}},
    "status": {"s": None},
}
PARTS = [kopf.Body, kopf.Meta, kopf.Spec, kopf.Status]


def fresh():
    return copy.deepcopy(RAW)


# contract: api 3.2
def claim_bodies_and_their_parts_are_mappings_only():
    body = kopf.Body(fresh())
    views = [body, body.spec, body.meta, body.status, body.meta.labels, body.meta.annotations]
    kinds = [Mapping, MutableMapping, Collection, Sequence, Hashable, dict]
    return [[isinstance(view, kind) for kind in kinds] for view in views] + [mro(cls) for cls in PARTS]


# contract: api 3.2
def claim_parts_look_like_their_dicts():
    body = kopf.Body(fresh())
    views = [body, body.spec, body.meta, body.status, body.meta.labels, body.meta.annotations]
    return [
        [
            repr(v),
            str(v),
            len(v),
            list(v),
            list(v.items()),
            list(v.values()),
            v == dict(v),
            dict(v) == v,
            bool(v),
        ]
        for v in views
    ]


def claim_parts_made_of_any_mapping():
    return [[repr(cls({})), repr(cls({"spec": {"x": 1}}))] for cls in PARTS] + [
        outcome(kopf.Body),
        outcome(lambda: len(kopf.Body(None))),
    ]


# contract: api 3.2
def claim_absent_stanzas():
    body = kopf.Body({})
    return [
        [len(v), list(v), v.get("x"), "x" in v, bool(v), repr(v), outcome(lambda v=v: v["x"])]
        for v in [body, body.spec, body.meta, body.status, body.meta.labels, body.meta.annotations]
    ] + [body.meta.name, body.meta.namespace, body.meta.uid, body.meta.creation_timestamp]


# contract: api 3.2
def claim_stanzas_that_are_not_mappings():
    answers = []
    for value in [None, 1, "text", [1]]:
        body = kopf.Body({"spec": value, "metadata": {"labels": value}})
        for view in [body.spec, body.meta.labels]:
            answers.append([outcome(lambda v=view: v.get("x")), outcome(lambda v=view: v["x"])])
            answers.append([outcome(lambda v=view: len(v)).split(":")[0]])
    return answers


# contract: api 3.2
def claim_identity_of_views():
    body = kopf.Body(fresh())
    return [
        body.spec is body.spec,
        body.meta is body.metadata,
        body.status is body.status,
        body["spec"] is body["spec"],
        type(body["spec"]).__name__,
        body.meta.labels is body.meta.labels,
    ]


# contract: api 3.2
def claim_mutating_an_inner_dict_is_seen():
    body = kopf.Body(fresh())
    body["spec"]["new"] = 1
    return [body.spec["new"], body["spec"]["d"] is body.spec["d"]]


# contract: api 3.2
def claim_views_cannot_be_changed():
    body = kopf.Body(fresh())

    def assign(view):
        view["x"] = 1

    def remove(view):
        del view["x"]

    return [outcome(fn, view) for fn in [assign, remove] for view in [body, body.spec, body.meta]] + [
        outcome(lambda: body | {}),
        outcome(lambda: body.spec.x),
        outcome(hash, body),
        outcome(lambda: {**body} == RAW),
    ]


# contract: api 3.2
def claim_attributes_of_users_are_kept():
    body = kopf.Body(fresh())
    body.mine = 1
    return [body.mine, sorted(name for name in dir(body) if not name.startswith("_"))]


# contract: api 3.2
def claim_meta_has_properties():
    meta = kopf.Body(fresh()).meta
    return [
        meta.name,
        meta.namespace,
        meta.uid,
        meta.creation_timestamp,
        meta.deletion_timestamp,
        repr(meta.labels),
        repr(meta.annotations),
        outcome(lambda: kopf.Body({}).meta["annotations"]),
    ]


# contract: api 3.2
def claim_bodies_are_serialised_as_dicts():
    body = kopf.Body(fresh())
    return [outcome(json.dumps, body), json.dumps(dict(body)), outcome(json.dumps, body.spec)]


# contract: api 3.2
def claim_copies_of_bodies():
    body = kopf.Body(fresh())
    pickled = pickle.loads(pickle.dumps(body))
    return [
        [type(c).__name__, c == RAW, c.spec == RAW["spec"]]
        for c in [copy.copy(body), copy.deepcopy(body), pickled]
    ] + [type(copy.deepcopy(body.spec)).__name__, type(copy.copy(body.meta)).__name__]


# contract: api 3.2
def claim_replaced_bodies_are_followed():
    body = kopf.Body(fresh())
    spec, meta, labels = body.spec, body.meta, body.meta.labels
    body._replace_with({"spec": {"b": 2}, "metadata": {"name": "m", "labels": {"z": "y"}}})
    answers = [repr(spec), repr(meta), repr(labels), meta.name]
    body._replace_from(kopf.Body({"spec": {"c": 3}}))
    return [*answers, repr(spec), repr(body)]


# --- Patches.


# contract: api 3.3
def claim_patches_are_dicts():
    patch = kopf.Patch()
    return [isinstance(patch, dict), mro(kopf.Patch), repr(patch), bool(patch), len(patch), patch == {}]


# contract: api 3.3
def claim_patches_are_made_of_dicts_and_functions():
    def function(body): ...

    return [
        shown(kopf.Patch({"a": 1})),
        shown(kopf.Patch({"a": 1}, fns=[function])),
        shown(kopf.Patch(fns=[function])),
        bool(kopf.Patch(fns=[function])),
        len(kopf.Patch(fns=[function])),
        kopf.Patch(fns=[function]) == {},
        kopf.Patch(kopf.Patch(fns=[function]), fns=[function]).fns == [function, function],
        outcome(lambda: kopf.Patch(src={})),
        outcome(lambda: kopf.Patch({}, kopf.Body({}))),
    ]


# contract: api 3.3
def claim_stanzas_of_patches_appear_when_set():
    patch = kopf.Patch()
    answers = [repr(patch.spec), len(patch.status), patch.meta.get("x"), repr(patch)]
    patch.spec["a"] = 1
    patch.status.update(b=2)
    patch.meta.labels["l"] = "v"
    patch.metadata.annotations.setdefault("an", "x")
    answers += [repr(patch), patch.meta is patch.metadata, patch.spec.pop("a"), repr(patch)]
    answers += [isinstance(patch.spec, MutableMapping), isinstance(patch.spec, dict)]
    return answers


# contract: api 3.3
def claim_deletion_from_patches():
    patch = kopf.Patch({"spec": {"a": 1}})

    def remove(stanza, key):
        del stanza[key]

    return [
        outcome(remove, patch.status, "x"),
        outcome(remove, patch.spec, "x"),
        outcome(remove, patch.spec, "a"),
        repr(patch),
        outcome(lambda: patch.status["zz"]),
    ]


# contract: api 3.3
def claim_functions_of_patches():
    patch = kopf.Patch({"a": 1}, fns=[])

    def assign():
        patch.fns = []

    answers = [patch.fns is patch.fns, outcome(assign)]
    patch.fns.append(print)
    answers += [bool(patch), len(patch.fns)]
    patch.clear()
    return [*answers, repr(patch), bool(patch), patch.fns]


# contract: api 3.3
def claim_copies_of_patches():
    patch = kopf.Patch({"a": 1}, fns=[print])
    joined = kopf.Patch({"a": 1})
    joined |= {"b": 2}
    return [
        type(patch.copy()).__name__,
        type(patch | {}).__name__,
        type(joined).__name__,
        repr(joined),
        type(copy.copy(patch)).__name__,
        outcome(lambda: patch.nope),
    ]


# contract: api 3.3
def claim_json_patches():
    body = {"metadata": {"name": "n"}, "spec": {"x": {"a": 1}, "l": [1, 2], "t": "x"}}

    def change(raw):
        raw["spec"]["l"].append(3)

    def nothing(raw): ...

    cases = [
        kopf.Patch(),
        kopf.Patch({"spec": {"x": {"a": 2}}}),
        kopf.Patch({"spec": {"x": {"a": None}}}),
        kopf.Patch({"spec": {"x": {"a": 1}}}),
        kopf.Patch({"status": {"s": {"t": 1}}}),
        kopf.Patch({"spec": {"nope": None}}),
        kopf.Patch(fns=[change]),
        kopf.Patch(fns=[nothing]),
        kopf.Patch({"spec": {"t": "y"}}, fns=[change]),
        kopf.Patch({"metadata": {"labels": {"a/b~c": "d"}}}),
    ]
    return [json.dumps(case.as_json_patch(kopf.Body(copy.deepcopy(body)))) for case in cases] + [
        outcome(kopf.Patch({"a": 1}).as_json_patch),
        outcome(kopf.Patch().as_json_patch),
        json.dumps(kopf.Patch({"spec": {"t": 1}}, body=kopf.Body(body)).as_json_patch()),
    ]


# --- Diffs.


# contract: api 3.4
def claim_diff_items():
    item = kopf.DiffItem(kopf.DiffOperation.CHANGE, ("a",), 1, 2)
    return [
        repr(item),
        item == ("change", ("a",), 1, 2),
        item == ["change", ("a",), 1, 2],
        item.op is item.operation,
        item.field,
        item.old,
        item.new,
        tuple(item)[1:],
        mro(kopf.DiffItem),
        outcome(kopf.DiffItem, "add"),
    ]


# contract: api 3.4
def claim_diffs():
    items = [("add", ("x",), None, 1), ["remove", ("y",), 2, None]]
    diff = kopf.Diff(items)
    return [
        repr(diff),
        diff == items,
        diff == tuple(items),
        [kopf.Diff([]) == (), kopf.Diff([]) == [], kopf.Diff([]) == kopf.Diff([])],
        bool(kopf.Diff([])),
        len(diff),
        repr(diff[0]),
        repr(diff[0:1]),
        type(diff[0:1]).__name__,
        type(diff[0].operation).__name__,
        isinstance(diff, Sequence),
        outcome(lambda: hash(kopf.Diff([("add", ("x",), None, 1)])) == 0),
        outcome(lambda: hash(kopf.Diff([("add", ("x",), None, [])]))),
        str(kopf.DiffOperation.ADD),
        repr(kopf.DiffOperation.ADD),
        kopf.DiffOperation.ADD == "add",
        outcome(kopf.Diff),
    ]


# --- Memos.


# contract: api 3.7
def claim_memos():
    memo = kopf.Memo()
    memo.a = 1
    memo["b"] = 2
    memo.items = 5
    answers = [repr(memo), memo.b, memo["a"], callable(memo.items), outcome(lambda: memo.zz)]
    del memo.a
    answers += [repr(memo), outcome(lambda: delattr(memo, "zz")), isinstance(memo, dict), mro(kopf.Memo)]
    for other in [
        copy.copy(memo),
        copy.deepcopy(memo),
        pickle.loads(pickle.dumps(memo)),
        memo.copy(),
        memo | {},
    ]:
        answers.append([type(other).__name__, other == memo])
    return [*answers, repr(kopf.Memo(x=1)), repr(kopf.Memo({"y": 2}))]


# --- Resources.


# contract: api 3.6
def claim_resources():
    pods = kopf.Resource("", "v1", "pods")
    full = kopf.Resource(
        "g", "v1", "ps", kind="P", singular="p", namespaced=True, subresources=frozenset({"s"})
    )
    odd = kopf.Resource("g", "v1", "ps/status")

    def assign():
        pods.group = "x"

    return [
        repr(pods),
        repr(full),
        repr(odd),
        list(full),
        full == kopf.Resource("g", "v1", "ps"),
        hash(full) == hash(kopf.Resource("g", "v1", "ps")),
        full == ("g", "v1", "ps"),
        outcome(assign),
        outcome(kopf.Resource, "g", "v1"),
        [
            pods.kind,
            pods.singular,
            pods.namespaced,
            pods.preferred,
            pods.verbs,
            pods.shortcuts,
            pods.categories,
        ],
    ]


# contract: api 3.6
def claim_urls_of_resources():
    spaced = kopf.Resource("g", "v1", "ps", namespaced=True)
    wide = kopf.Resource("", "v1", "ns", namespaced=False)
    unknown = kopf.Resource("g", "v1", "ps")
    return outcomes(
        spaced.get_url,
        lambda: spaced.get_url(namespace="n"),
        lambda: spaced.get_url(namespace="n", name="x"),
        lambda: spaced.get_url(namespace="n", name="x", subresource="status"),
        lambda: spaced.get_url(name="x"),
        lambda: spaced.get_url(subresource="status"),
        lambda: spaced.get_url(server="https://h/", params={"a": "b c", "d": "e&f"}),
        lambda: spaced.get_url(server="https://h/p", params={}),
        wide.get_url,
        lambda: wide.get_url(name="x"),
        lambda: wide.get_url(namespace="n"),
        lambda: wide.get_url(namespace="n", name="x"),
        lambda: unknown.get_url(namespace="n", name="x"),
        lambda: unknown.get_url(name="x"),
        lambda: kopf.Resource("g", "v1", "ps/status").get_url(),
    )


# --- Indices, types, loggers, flags.


# contract: api 3.9
def claim_indices_are_abstract():
    return [
        outcome(kopf.Index),
        outcome(kopf.Store),
        mro(kopf.Index),
        mro(kopf.Store),
        shown(kopf.Index[str, int]),
        shown(kopf.Store[int]),
    ]


# contract: api 1.2
def claim_types_are_for_annotations_only():
    return outcomes(
        lambda: isinstance(1, kopf.DaemonStopped),
        lambda: isinstance(1, kopf.Logger),
        lambda: kopf.HandlerId("x"),
        lambda: kopf.RawBody(kind="x"),
        lambda: kopf.RawEvent(type=None, object={}),
        lambda: kopf.ObjectReference(name="x"),
        lambda: kopf.FieldPath,
        lambda: kopf.FieldSpec,
        lambda: kopf.Labels,
        lambda: kopf.Operation,
        lambda: kopf.Headers,
        lambda: kopf.SSLPeer,
        lambda: kopf.RawEventType,
    )


# contract: api 3.10
def claim_loggers_of_objects():
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("kopf.objects")
    logger.addHandler(handler)
    settings = kopf.OperatorSettings()
    try:
        for cls in [kopf.ObjectLogger, kopf.LocalObjectLogger]:
            mine = cls(body=kopf.Body(fresh()), settings=settings)
            mine.warning("hello %s", "you", extra={"user": 1, "k8s_skip": True})
            mine.warning("hello")
    finally:
        logger.removeHandler(handler)
    return [
        [r.name, r.getMessage(), getattr(r, "user", None), r.k8s_skip, r.k8s_ref, r.settings is settings]
        for r in records
    ] + [
        sorted(mine.extra),
        isinstance(mine, logging.LoggerAdapter),
        issubclass(kopf.LocalObjectLogger, kopf.ObjectLogger),
        outcome(kopf.ObjectLogger),
    ]


# contract: api 11
def claim_references_to_objects():
    owner = kopf.Body(fresh())
    bare = {"metadata": {"name": ""}}
    return [
        list(kopf.build_object_reference(owner).items()),
        list(kopf.build_object_reference(bare).items()),
        list(kopf.build_owner_reference(owner).items()),
        list(kopf.build_owner_reference(owner, controller=False, block_owner_deletion=None).items()),
        list(kopf.build_owner_reference(bare).items()),
    ]


# contract: api 1.2
def claim_errors():
    def made(fn):
        e = fn()
        return [str(e), list(e.args), getattr(e, "delay", "-"), getattr(e, "code", "-"), mro(type(e))]

    return [
        made(kopf.TemporaryError),
        made(lambda: kopf.TemporaryError("m")),
        made(lambda: kopf.TemporaryError("m", 5)),
        made(lambda: kopf.TemporaryError("m", delay=None)),
        made(lambda: kopf.PermanentError("m", 1)),
        made(kopf.AdmissionError),
        made(lambda: kopf.AdmissionError("m", 400)),
        made(lambda: kopf.AdmissionError(message="m", code=None)),
        made(lambda: kopf.HandlerTimeoutError("m")),
        made(lambda: kopf.HandlerRetriesError("m")),
        made(lambda: kopf.LoginError("m")),
        outcome(lambda: kopf.TemporaryError("m", delay=1, x=2)).split(":")[0],
    ]


# contract: api 1.2
def claim_enumerations():
    return [
        [
            str(kopf.Reason.CREATE),
            kopf.Reason.CREATE == "create",
            f"{kopf.Reason.DELETE}",
            repr(kopf.Reason.GONE),
        ],
        repr(kopf.DaemonStoppingReason.DONE | kopf.DaemonStoppingReason.OPERATOR_EXITING),
        [kopf.PRESENT.name, kopf.ABSENT.name, kopf.EVERYTHING.name],
        [repr(kopf.ErrorsMode.IGNORED), kopf.LogFormat("-json-").name],
        outcome(lambda: kopf.Reason("nope")),
    ]


# contract: api 1.6
def claim_lifecycles():
    class Record:
        def __init__(self, retries):
            self.retries = retries

    class Handler:
        def __init__(self, id):
            self.id = id

    handlers = [Handler(id) for id in "abc"]
    state = {"a": Record(2), "b": Record(1), "c": Record(1)}

    def picked(fn, some=handlers):
        return [handler.id for handler in fn(some, state=state, body={}, other=1)]

    return [
        picked(kopf.lifecycles.all_at_once),
        picked(kopf.lifecycles.one_by_one),
        picked(kopf.lifecycles.asap),
        len(picked(kopf.lifecycles.randomized)),
        sorted(picked(kopf.lifecycles.shuffled)),
        [
            picked(fn, [])
            for fn in [kopf.lifecycles.randomized, kopf.lifecycles.asap, kopf.lifecycles.one_by_one]
        ],
        kopf.get_default_lifecycle().__name__,
    ]


# contract: api 1.5
def claim_combinators():
    yes, no = (lambda *_, **__: True), (lambda *_, **__: False)
    made = [kopf.not_(yes), kopf.all_([yes, no]), kopf.any_([yes, no]), kopf.none_([no, no])]
    return [
        [fn(1, a=2) for fn in made],
        [fn.__name__ for fn in made],
        [kopf.all_([])(), kopf.any_([])(), kopf.none_([])()],
        kopf.all_([lambda *args, **kwargs: (args, kwargs) == ((1,), {"x": 2})])(1, x=2),
        [kopf.any_(iter([yes]))(), outcome(lambda: [fn() for fn in [kopf.all_(iter([no]))] * 2])],
    ]


def claim_private_factories_warn_in_settings():
    settings = kopf.OperatorSettings()
    return [warned(lambda: settings.batching is settings.queueing), asyncio.iscoroutinefunction(kopf.execute)]
