"""Registration by decorators, and rejected arguments."""

import functools

import kopf
import pytest
from kopf._intents import serialization
from kopf._intents.handlers import ChangingHandler
from kopf._intents.registries import ChangingRegistry
from kopf._runtime.context import context, handler_var, subregistry_var

LISTS = ["_activities", "_indexing", "_watching", "_spawning", "_changing", "_webhooks"]
WITH_FIELD = [
    "resume",
    "create",
    "update",
    "delete",
    "field",
    "event",
    "daemon",
    "timer",
    "validate",
    "mutate",
]


def fn(**_): ...


class CallableObject:
    def __call__(self, **_): ...

    def method(self, **_): ...


@pytest.fixture()
def registry():
    return kopf.OperatorRegistry()


def only_handler(registry):
    (handler,) = [h for name in LISTS for h in getattr(registry, name).get_all_handlers()]
    return handler


@pytest.mark.contract("engine 6.1", "api 2.1")
def test_functions_are_returned_unchanged(registry):
    assert kopf.on.event("x", registry=registry)(fn) is fn


@pytest.mark.contract("engine 6.2", "api 2.4")
@pytest.mark.parametrize(
    "function, id",
    [
        (fn, "fn"),
        (functools.partial(functools.partial(fn)), "fn"),
        (functools.wraps(fn)(lambda **_: None), "fn"),
        (CallableObject().method, "CallableObject.method"),
        (lambda **_: None, f"lambda:{__file__}:"),
    ],
)
def test_ids_are_derived_from_functions(registry, function, id):
    kopf.on.event("x", registry=registry)(function)
    assert only_handler(registry).id.startswith(id)


@pytest.mark.contract("engine 6.2")
@pytest.mark.parametrize("name", WITH_FIELD)
def test_fields_are_suffixes_of_ids_also_of_explicit_ones(registry, name):
    getattr(kopf.on, name)("x", id="q", field="spec.a", registry=registry)(fn)
    assert only_handler(registry).id == "q/spec.a"
    assert only_handler(registry).field == ("spec", "a")


@pytest.mark.contract("engine 6.2")
def test_fields_are_not_suffixes_of_ids_of_indices(registry):
    kopf.index("x", field="spec.a", registry=registry)(fn)
    assert only_handler(registry).id == "fn"


@pytest.mark.contract("engine 5.1", "api 2.3", "api E")
@pytest.mark.parametrize(
    "decorate, error, message",
    [
        (lambda r: kopf.on.create("x", value=1, registry=r)(fn), TypeError, "without a mandatory field"),
        (lambda r: kopf.on.update("x", old=1, registry=r)(fn), TypeError, "without a mandatory field"),
        (
            lambda r: kopf.on.update("x", field="a", value=1, old=2, registry=r)(fn),
            TypeError,
            "Either value= or old=/new= can be defined, not both.",
        ),
        (lambda r: kopf.on.create("x", labels={"a": None}, registry=r)(fn), ValueError, "`None` for label"),
        (
            lambda r: kopf.on.create("x", annotations={"a": None}, registry=r)(fn),
            ValueError,
            "`None` for annotation",
        ),
        (lambda r: kopf.on.create("x", field=1, registry=r)(fn), ValueError, "Field must be either a str"),
        (lambda r: kopf.on.create("x", registry=r)(CallableObject()), ValueError, "Cannot get id of"),
        (lambda r: kopf.on.create(registry=r)(fn), TypeError, "Unspecific resource with no names."),
        (
            lambda r: kopf.on.validate("x", operations=[], registry=r)(fn),
            ValueError,
            "Operations should be either None or non-empty",
        ),
        (lambda r: kopf.on.create("x", old=1, registry=r), TypeError, "unexpected keyword argument 'old'"),
        (lambda r: kopf.on.field("x", registry=r), TypeError, "argument: 'field'"),
    ],
)
def test_invalid_declarations_are_rejected(registry, decorate, error, message):
    with pytest.raises(error, match=message):
        decorate(registry)
    assert not registry._changing.get_all_handlers()


@pytest.mark.contract("api 2.3")
def test_refusals_name_the_function(registry):
    with pytest.raises(TypeError) as err:
        kopf.on.create(registry=registry)(fn)
    assert "kopf.on.create" in err.value.__notes__[0]
    assert "function fn" in err.value.__notes__[0]


@pytest.mark.contract("api 2.7")
def test_the_only_operation_is_deprecated_and_merged(registry):
    with pytest.warns(DeprecationWarning, match="operation= is deprecated") as record:
        kopf.on.mutate("x", operation="CREATE", operations=["UPDATE"], registry=registry)(fn)
    assert only_handler(registry).operations == {"CREATE", "UPDATE"}
    assert record[0].filename == __file__


@pytest.mark.contract("engine 6.1", "api 1.7", "observed 15")
def test_default_registry_is_replaceable():
    from kopf._runtime import default_registry

    original = default_registry._default_registry
    try:
        mine = kopf.OperatorRegistry()
        kopf.set_default_registry(mine)
        kopf.on.event("x")(fn)
        assert only_handler(kopf.get_default_registry()).fn is fn
    finally:
        default_registry._default_registry = original


@pytest.fixture()
def parent(registry):
    kopf.on.update("x", id="parent", registry=registry)(fn)
    return only_handler(registry)


@pytest.fixture()
def within(parent):
    subregistry = ChangingRegistry()
    with context([(handler_var, parent), (subregistry_var, subregistry)]):
        yield subregistry


def test_subhandlers_belong_to_their_parents(within):
    kopf.subhandler(field="spec.a")(fn)
    kopf.register(fn, id="other")
    first, second = within.get_all_handlers()
    assert (first.id, second.id) == ("parent/fn", "parent/other")
    assert isinstance(first, ChangingHandler)
    assert first.field_needs_change is True
    assert first.selector is None


def test_subhandlers_need_a_parent():
    with pytest.raises(LookupError):
        kopf.subhandler()(fn)


def test_subhandlers_need_a_parent_of_changes(registry):
    kopf.on.event("x", registry=registry)(fn)
    with (
        context([(handler_var, only_handler(registry)), (subregistry_var, ChangingRegistry())]),
        pytest.raises(TypeError, match="only supported for resource-changing handlers"),
    ):
        kopf.subhandler()(fn)


@pytest.mark.contract("engine 5.1")
def test_subhandlers_with_changes_of_values_need_an_updating_parent(registry):
    kopf.on.create("x", registry=registry)(fn)
    with (
        context([(handler_var, only_handler(registry)), (subregistry_var, ChangingRegistry())]),
        pytest.raises(TypeError, match="only be used in update handlers"),
    ):
        kopf.subhandler(field="a", old=1)(fn)


@pytest.mark.parametrize("declare", [kopf.on.update, kopf.on.field])
def test_subhandlers_of_subhandlers_can_depend_on_changes_of_values(registry, declare):
    declare("x", field="a", registry=registry)(fn)
    parent = only_handler(registry)
    for _ in range(2):
        subregistry = ChangingRegistry()
        with context([(handler_var, parent), (subregistry_var, subregistry)]):
            kopf.subhandler(field="a", old=1)(fn)
        [parent] = subregistry.get_all_handlers()


def test_functions_in_subhandlers_of_creations_can_depend_on_changes_of_values(registry):
    kopf.on.create("x", registry=registry)(fn)
    subregistry = ChangingRegistry()
    with context([(handler_var, only_handler(registry)), (subregistry_var, subregistry)]):
        kopf.subhandler()(fn)
    [parent] = subregistry.get_all_handlers()
    with context([(handler_var, parent), (subregistry_var, ChangingRegistry())]):
        kopf.subhandler(field="a", old=1)(fn)


@pytest.mark.parametrize(
    ("decorator", "options"),
    [
        (kopf.on.event, {}),
        (kopf.index, {}),
        (kopf.daemon, {}),
        (kopf.timer, {"interval": 1}),
        (kopf.on.event, {"field": "metadata.labels.app", "labels": {"app": kopf.PRESENT}}),
    ],
)
def test_metadata_only_is_accepted_by_these_decorators(registry, decorator, options):
    decorator("x", registry=registry, **options)(fn)
    assert serialization.serialize_handler(only_handler(registry))["metadata_only"] is False
    registry = kopf.OperatorRegistry()
    decorator("x", registry=registry, metadata_only=True, **options)(fn)
    assert serialization.serialize_handler(only_handler(registry))["metadata_only"] is True


@pytest.mark.parametrize(
    ("decorator", "options", "error", "text"),
    [
        (kopf.on.event, {"field": "spec.x"}, ValueError, "field='spec.x' is not in the metadata"),
        (kopf.index, {"field": "status"}, ValueError, "field='status' is not in the metadata"),
        (kopf.timer, {"idle": 10, "interval": 1}, ValueError, "idle= counts from the last change"),
        (kopf.on.event, {"metadata_only": "yes"}, TypeError, "metadata_only= must be either True or False"),
        (kopf.on.create, {}, TypeError, "metadata_only"),
    ],
)
def test_what_metadata_cannot_be_enough_for_is_an_error(registry, decorator, options, error, text):
    with pytest.raises(error, match=text):
        decorator("x", registry=registry, **{"metadata_only": True, **options})(fn)
