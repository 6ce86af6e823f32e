"""Claims about declarations: decorators, ids, selectors, filters, registries, sub-handlers."""

import dataclasses
import functools

import kopf
from parity_runner import logged, outcome, outcomes, shown, warned

LISTS = ["_activities", "_indexing", "_watching", "_spawning", "_changing", "_webhooks"]
ACTIVITIES = ["startup", "cleanup", "login", "probe"]
CHANGING = ["resume", "create", "update", "delete", "field"]
RESOURCE = [*CHANGING, "index", "event", "daemon", "timer", "validate", "mutate"]


def fn(**_): ...


class Class:
    def method(self, **_): ...

    @classmethod
    def class_method(cls, **_): ...

    @staticmethod
    def static_method(**_): ...

    def __call__(self, **_): ...


def handlers(registry):
    return [handler for name in LISTS for handler in getattr(registry, name).get_all_handlers()]


def declared(name, *args, function=fn, **kwargs):
    """All fields of the handler that is made by a decorator."""
    registry = kopf.OperatorRegistry()
    if name == "field":
        kwargs.setdefault("field", "spec.f")
    decorated = getattr(kopf.on, name)(*args, registry=registry, **kwargs)(function)
    [handler] = handlers(registry)
    return [
        decorated is function,
        type(handler).__name__,
        *[
            [field.name, shown(getattr(handler, field.name))]
            for field in dataclasses.fields(handler)
            if field.name != "metadata_only"  # an addition of ours
            if field.name != "fn"
        ],
    ]


def rejected(name, *args, function=fn, **kwargs):
    return outcome(declared, name, *args, function=function, **kwargs)


# contract: api 2.1
def claim_activities_by_default():
    return [declared(name) for name in ACTIVITIES]


# contract: api 2.1, api 2.2
def claim_activities_with_options():
    options = {
        "id": "i",
        "param": 1,
        "errors": kopf.ErrorsMode.PERMANENT,
        "timeout": 2,
        "retries": 3,
        "backoff": 4,
    }
    return [declared(name, **options) for name in ACTIVITIES]


# contract: api 2.1
def claim_resource_handlers_by_default():
    return [declared(name, "pods") for name in RESOURCE]


# contract: api 2.6
def claim_resource_handlers_with_filters():
    options = {"labels": {"a": kopf.PRESENT}, "annotations": {"b": "c"}, "when": fn, "param": [1], "id": "x"}
    return [declared(name, "g", "v1", "ps", **options) for name in RESOURCE]


# contract: api 2.2
def claim_resource_handlers_with_errors():
    options = {"errors": kopf.ErrorsMode.IGNORED, "timeout": 1.5, "retries": 2, "backoff": 0.5}
    with_errors = [name for name in RESOURCE if name not in ("event", "validate", "mutate")]
    return [declared(name, "ps", **options) for name in with_errors]


# contract: api 2.4, api 2.6
def claim_fields_and_values():
    answers = [declared(name, "ps", field="spec.a", value=1) for name in RESOURCE]
    answers += [declared(name, "ps", field=["spec", "a"], old=1, new=2) for name in ["update", "field"]]
    answers += [declared("create", "ps", field=()), declared("create", "ps", field="")]
    return [*answers, declared("create", "ps", field=[], value=1)]


# contract: api 2.7
def claim_options_of_their_own():
    return [
        declared("resume", "ps", deleted=True),
        declared("delete", "ps", optional=True),
        declared(
            "daemon",
            "ps",
            initial_delay=1,
            cancellation_backoff=2,
            cancellation_timeout=3,
            cancellation_polling=4,
        ),
        declared("timer", "ps", interval=1, initial_delay=2, sharp=True, idle=3),
        declared(
            "validate",
            "ps",
            operations=["CREATE"],
            subresource="s",
            persistent=True,
            side_effects=True,
            ignore_failures=True,
        ),
        declared("field", "ps", field=None),
    ]


# contract: api 2.4
def claim_ids():
    odd = functools.wraps(fn)(lambda **_: None)
    functions = [
        fn,
        functools.partial(functools.partial(fn)),
        odd,
        Class().method,
        Class.class_method,
        Class.static_method,
    ]
    inner = lambda **_: None  # noqa: E731
    return [
        *[declared("create", "ps", function=function)[2] for function in functions],
        declared("create", "ps", function=inner)[2][1].split(":")[0],
        declared("create", "ps", function=Class(), id="x")[2],
        declared("index", "ps", id="x", field="a.b")[2],
        declared("event", "ps", id="x", field="a.b")[2],
    ]


# contract: api 2.3
def claim_things_without_ids():
    return [rejected("create", "ps", function=thing) for thing in [Class(), print, 1]] + [
        rejected("startup", function=Class())
    ]


SELECTORS = [
    ("pods",),
    ("pods.v1",),
    ("deployments.apps",),
    ("deployments.v1.apps",),
    ("x.v1alpha2.foo.bar",),
    ("x.v1alpha.foo",),
    ("apps", "deployments"),
    ("v1", "pods"),
    ("v2beta1", "pods"),
    ("apps/v1", "deployments"),
    ("a/b/v1", "deployments"),
    ("apps", "v1", "deployments"),
    ("", "v1", "pods"),
    (kopf.EVERYTHING,),
    ("g", kopf.EVERYTHING),
    ("g/v1", kopf.EVERYTHING),
    ("g", "v1", kopf.EVERYTHING),
    ("kopf.dev/v1/kopfexamples",),
    ("v1/pods",),
    (),
    ("",),
    ("", ""),
    (None, None, "ps"),
]


def selected(*args, **kwargs):
    return dict(declared("event", *args, **kwargs)[2:])["selector"]


# contract: api 2.5
def claim_selectors_by_position():
    return [outcome(selected, *args) for args in SELECTORS]


# contract: api 2.5
def claim_selectors_by_names():
    cases = [
        {"kind": "P"},
        {"plural": "ps"},
        {"singular": "p"},
        {"shortcut": "p"},
        {"category": "all"},
        {"group": "g", "version": "v1", "plural": "ps"},
        {"kind": "P", "plural": "ps"},
        {"kind": ""},
        {"group": "g"},
    ]
    return [outcome(selected, **case) for case in cases] + [
        outcome(selected, "g1", "ps", group="g2"),
        outcome(selected, "ps", kind="P"),
        outcome(selected, fn, kind="P"),
        outcome(selected, fn, group="g"),
        outcome(selected, *kopf.Resource("g", "v1", "ps")),
    ]


# contract: api 2.5
def claim_selection():
    from kopf._cogs.structs.references import Selector

    pods = kopf.Resource(
        "",
        "v1",
        "pods",
        kind="Pod",
        singular="pod",
        shortcuts=frozenset({"po"}),
        categories=frozenset({"all"}),
    )
    events = kopf.Resource("events.k8s.io", "v1", "events", kind="Event")
    older = kopf.Resource("g", "v1beta1", "ps", kind="P", preferred=False)
    cases = [
        *[Selector(*args) for args in SELECTORS if args and all(args)],
        *[Selector(name) for name in ["Pod", "pod", "po", "all", "ps", "events", "pods.v1"]],
        *[
            Selector(category="all"),
            Selector(lambda _: True),
            Selector("g", "v1beta1", "ps"),
            Selector("g", "ps"),
        ],
    ]
    return [[case.check(resource) for resource in [pods, events, older]] for case in cases] + [
        [shown(sorted(map(repr, case.select([pods, events, older])))) for case in cases],
    ]


# Our messages continue with advice.
def first_sentence(*args, **kwargs):
    return outcome(*args, **kwargs).split(". ")[0].removesuffix(".")


# contract: api 2.3
def claim_refusals():
    return [
        *[rejected(name, "ps", value=1) for name in ["create", "event", "daemon", "index", "validate"]],
        rejected("update", "ps", old=1),
        rejected("update", "ps", field="a", value=1, old=2),
        rejected("field", "ps", field="a", value=1, new=2),
        rejected("create", "ps", labels={"a": None}),
        rejected("create", "ps", annotations={"a": None}),
        rejected("create", "ps", labels=["a"]),
        rejected("create", "ps", field=1),
        rejected("validate", "ps", operations=[]),
        rejected("mutate", "ps", operations=()),
        outcome(kopf.on.field, "ps"),
        outcome(kopf.on.create, "a", "b", "c", "d"),
        first_sentence(kopf.on.create, "ps", old=1),
        first_sentence(kopf.on.event, "ps", errors=None),
        first_sentence(kopf.on.validate, "ps", errors=None),
        first_sentence(kopf.on.create, arg1="ps"),
        first_sentence(kopf.on.startup, fn),
        first_sentence(kopf.on.startup, settings=1),
        callable(kopf.on.create(lambda resource: True)),
    ]


def claim_decorators_without_arguments():
    return outcome(lambda: callable(kopf.on.create(fn)))


# contract: api 2.3
def claim_deprecated_operation():
    both = warned(
        lambda: sorted(
            dict(declared("mutate", "ps", operation="CREATE", operations=["UPDATE"])[2:])["operations"]
        )
    )
    return [*warned(declared, "validate", "ps", operation="CREATE"), *both]


# contract: api 2.7
def claim_operation_of_handlers():
    registry = kopf.OperatorRegistry()
    for number, operations in enumerate([None, ["CREATE"], ["CREATE", "UPDATE"]]):
        kopf.on.validate("ps", id=str(number), operations=operations, registry=registry)(fn)
    none, one, many = (warned(lambda handler=handler: handler.operation) for handler in handlers(registry))
    return [none, one, many[-1].split(":")[0]]


# contract: api 2.7
def claim_handlers_are_frozen_values():
    registry = kopf.OperatorRegistry()
    for id in "aab":
        kopf.on.create("ps", id=id, registry=registry)(fn)
    one, same, other = handlers(registry)
    return [
        outcome(setattr, one, "id", "x"),
        [one == same, one == other, one == "a", hash(one) == hash(same), len({one, same, other})],
        shown(repr(one)),
        str(one),
    ]


# contract: api 2.1
def claim_decorators_are_the_same():
    names = ["daemon", "timer", "index", "subhandler", "register"]
    return [getattr(kopf, name) is getattr(kopf.on, name) for name in names] + [kopf.event is kopf.on.event]


# contract: api 2.3
def claim_subhandlers_need_handlers():
    refusals = outcomes(
        lambda: kopf.subhandler()(fn),
        lambda: kopf.register(fn),
        lambda: kopf.register(fn, field="x"),
    )
    return [*refusals, first_sentence(kopf.subhandler, registry=1)]


def within(name, call, **kwargs):
    from kopf._core.actions.execution import handler_var
    from kopf._core.actions.invocation import context
    from kopf._core.intents.registries import ChangingRegistry
    from kopf._core.reactor.subhandling import subregistry_var

    registry = kopf.OperatorRegistry()
    if name == "field":
        kwargs["field"] = "spec.f"
    getattr(kopf.on, name)("ps", id="parent", registry=registry, **kwargs)(fn)
    [parent] = handlers(registry)
    mine = ChangingRegistry()
    with context([(handler_var, parent), (subregistry_var, mine)]):
        result = outcome(call)
    return [
        result if "Error" in result else "",
        *[
            [
                [f.name, shown(getattr(h, f.name))]
                for f in dataclasses.fields(h)
                if f.name not in ("fn", "metadata_only")
            ]
            for h in mine.get_all_handlers()
        ],
    ]


# contract: api 2.3
def claim_subhandlers():
    calls = [
        lambda: kopf.subhandler()(fn),
        lambda: kopf.subhandler(id="s", field="spec.a", value=1, param=2)(fn),
        lambda: kopf.subhandler(field="spec.a", old=1)(fn),
        lambda: kopf.subhandler(old=1)(fn),
        lambda: kopf.subhandler(value=1)(fn),
        lambda: kopf.subhandler(labels={"a": None})(fn),
        lambda: kopf.register(fn, id="r", when=fn, labels={"a": "b"}),
    ]
    return [[name, [within(name, call) for call in calls]] for name in [*CHANGING, "event"]]


# contract: api 1.7
def claim_default_registry():
    old = kopf.get_default_registry()
    mine = kopf.OperatorRegistry()
    kopf.set_default_registry(mine)
    kopf.on.event("ps")(fn)
    answers = [len(handlers(mine)), kopf.get_default_registry() is mine]
    kopf.set_default_registry(old)
    return [*answers, isinstance(old, kopf.OperatorRegistry), outcome(kopf.OperatorRegistry, 1).split(":")[0]]


# contract: api 1.7, api 7.4
def claim_fallbacks_of_the_default_registry():
    from kopf._core.intents.registries import SmartOperatorRegistry

    return [
        [[h.id, h.errors.name, h._fallback] for h in handlers(registry)]
        for registry in [SmartOperatorRegistry(), kopf.OperatorRegistry()]
    ]


# contract: api 1.6
def claim_default_lifecycle():
    def reset():
        kopf.set_default_lifecycle(None)
        return kopf.get_default_lifecycle().__name__

    return [logged(kopf.set_default_lifecycle, kopf.lifecycles.one_by_one), logged(reset)]


# contract: api 2.9
def claim_execution_outside_of_handlers():
    import asyncio

    return [
        outcome(lambda: asyncio.run(kopf.execute())),
        outcome(lambda: asyncio.run(kopf.execute(fns=[fn]))),
        outcome(lambda: asyncio.run(kopf.execute(fns=[fn], handlers=[]))),
        outcome(lambda: asyncio.run(kopf.execute(fns=1))),
    ]
