"""Declarations of reconcilers: section 1.1 with all rejections, and the helpers of 1.1 and 1.6."""

import datetime
import pickle

import kopf
import pytest
from kopf._cli import permissions
from kopf._intents.reconciling_serialization import serialize_reconciler
from kopf._intents.reconciling_settings import ReconcilingSettings
from kopf._objects.conditions import Conditions, changes_of
from kopf._runtime.reconciler_functions import hash_values


@pytest.fixture()
def registry():
    return kopf.OperatorRegistry()


def sync(**_): ...


async def coroutine(**_): ...


def declared(registry, *args, **options):
    kopf.on.reconcile(*(args or ("shops",)), registry=registry, **options)(sync)
    (handler,) = registry._reconciling.get_all_handlers()
    return handler


def test_1_1_the_function_is_returned_unchanged(registry):
    assert kopf.on.reconcile("shops", registry=registry)(sync) is sync
    assert not vars(sync)


@pytest.mark.parametrize(
    "options, error",
    [
        ({"debounce": -1}, "debounce= must not be negative"),
        ({"resync": -0.1}, "resync= must not be negative"),
        ({"reconcile_timeout": -1}, "reconcile_timeout= must not be negative"),
        ({"backoff": -1}, "backoff= must not be negative"),
        ({"concurrency": 0}, "concurrency= must be at least 1"),
        ({"finalizer": "a.b/c"}, "finalizer= needs deletion=True"),
        ({"finalizer": "abc", "deletion": True}, "finalizer= must be domain/name"),
        ({"changed": "essense"}, "is no word for changed="),
        ({"changed": []}, "changed= must not be empty"),
        ({"changed": coroutine}, "must be a synchronous function"),
        ({"initial": "all"}, "initial= must be"),
        ({"owns": "deployments"}, "owns= must be a list"),
        ({"watches": ["secrets"]}, "watches= consists of kopf.watch"),
        ({"value": 1}, "without a mandatory field"),
        ({"backoff": "fast"}, "backoff= must be a number"),
    ],
)
def test_1_1_wrong_options_are_rejected_with_the_function(registry, options, error):
    with pytest.raises((TypeError, ValueError), match=error) as raised:
        declared(registry, **options)
    assert any("on.reconcile" in note and "sync" in note for note in raised.value.__notes__)


def test_1_1_kubernetes_events_are_rejected(registry):
    with pytest.raises(ValueError, match="Kubernetes events"):
        declared(registry, "events")
    with pytest.raises(ValueError, match="Kubernetes events"):
        kopf.watch("events", map=sync)


def test_1_1_watched_kinds_need_one_of_map_and_by():
    for options in ({}, {"map": sync, "by": "spec.x"}):
        with pytest.raises(TypeError, match="either map=, or by=, but not both"):
            kopf.watch("secrets", **options)
    with pytest.raises(TypeError, match="synchronous"):
        kopf.watch("secrets", map=coroutine)
    with pytest.raises(TypeError, match="namespaces= must be"):
        kopf.watch("secrets", by="spec.x", namespaces="default")
    with pytest.raises(ValueError, match="without patterns"):
        kopf.watch("secrets", by="spec.x", namespaces=["team-*"])
    with pytest.raises(ValueError, match="no other brackets"):
        kopf.watch("secrets", by="spec.x[0]")
    with pytest.raises(ValueError, match="single kind"):
        kopf.owned((None, None, kopf.EVERYTHING))


def test_1_1_the_same_id_for_two_functions_is_rejected(registry):
    kopf.on.reconcile("shops", id="one", registry=registry)(sync)
    kopf.on.reconcile("shops", id="one", registry=registry)(sync)
    with pytest.raises(ValueError, match="another reconciler with the id 'one'"):
        kopf.on.reconcile("shops", id="one", registry=registry)(coroutine)


def test_1_1_defaults_come_from_the_settings(registry):
    handler = declared(registry, owns=["deployments", kopf.owned("pods", controller=True)], debounce=0.0)
    settings = ReconcilingSettings(debounce=5, concurrency=3, backoff=7)
    serialized = serialize_reconciler(handler, settings)
    assert (serialized["debounce"], serialized["concurrency"]) == (0.0, 3)
    assert serialized["delays"] == {"constant": 7.0}
    assert serialized["changed"] == [{"word": "essence"}]
    relations = [related["relation"] for related in serialized["owns"]]
    own = {"own_writes": True}
    assert relations == [{"owned": {"controller": False} | own}, {"owned": {"controller": True} | own}]
    assert serialized["owns"][0]["changed"] == [{"word": "any"}]


def test_1_1_unknown_settings_are_errors():
    with pytest.raises(AttributeError):
        kopf.OperatorSettings().reconciling.concurency = 1


def test_1_1_mapping_helpers():
    assert kopf.by_label("shop")(labels={"shop": "one"}) == "one"
    assert kopf.by_label("shop")(labels={}) is None
    assert kopf.same_name()(name="one", namespace="ns") == "one"


def test_1_6_requeues_have_a_time():
    requeue = kopf.Requeue(datetime.timedelta(minutes=1), "soon")
    assert (requeue.after, requeue.reason) == (60.0, "soon")
    assert pickle.loads(pickle.dumps(requeue)).after == 60.0
    for after in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="zero or more seconds"):
            kopf.Requeue(after)


def test_1_1_references_are_made_of_bodies_and_references():
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "n", "uid": "u"},
    }
    assert kopf.ref(body) == kopf.Ref(("apps", "v1", "Deployment"), "a", "n", "u")
    assert kopf.ref(kopf.build_owner_reference(body)).uid == "u"
    with pytest.raises(ValueError, match="needs a kind and a name"):
        kopf.ref({"metadata": {}})


def test_1_9_conditions_show_the_changes_of_the_call():
    listed = {"type": "A", "status": "True", "reason": "R", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    conditions = Conditions({"metadata": {"generation": 3}, "status": {"conditions": [listed]}})
    assert conditions["A"].since.year == 2020
    conditions.set("A", True, reason="Same")
    assert (conditions["A"].since.year, conditions["A"].generation) == (2020, 3)
    conditions.set("A", None, reason="Unclear")
    assert conditions["A"].status is None and conditions["A"].since.year > 2020
    conditions.drop("A")
    assert "A" not in conditions
    assert changes_of(conditions)[1] == [("A", None)]
    for reason in ("", "lower", "Two Words", "A" * 1025):
        with pytest.raises(ValueError, match="CamelCase"):
            conditions.set("B", True, reason=reason)


def test_1_1_back_offs_are_not_negative():
    with pytest.raises(ValueError, match="first= must not be negative"):
        kopf.Backoff(first=-1)


def test_5_the_permissions_are_those_of_the_primary_and_of_related_kinds(registry):
    def resource(group, plural, *subresources):
        return kopf.Resource(
            group=group,
            version="v1",
            plural=plural,
            kind=plural.title(),
            subresources=frozenset(subresources),
            namespaced=True,
            preferred=True,
        )

    resources = [resource("example.com", "shops", "status"), resource("", "secrets"), resource("", "pods")]
    declared(registry, owns=["pods"], watches=[kopf.watch("secrets", by="spec.secret")])
    resolved = permissions.resolve(registry, resources)
    found = {
        (item.verb, item.resource)
        for item in permissions.required_permissions(resolved, ["ns"], kopf.OperatorSettings())
    }
    assert {(verb, "shops") for verb in ("list", "watch", "patch")} | {("patch", "shops/status")} <= found
    assert {(verb, plural) for verb in ("list", "watch") for plural in ("pods", "secrets")} <= found
    assert not {("patch", "pods"), ("patch", "secrets")} & found


@pytest.mark.parametrize(
    "before, after",
    [(-1, -2), (-1.0, -2.0), (0, ""), (0, False), (0, "0"), ((-1, "x"), (-2, "x")), (None, 0)],
)
def test_1_2_different_values_of_a_function_in_changed_have_different_hashes(before, after):
    hashes = [hash_values([lambda **_: value], {})[0] for value in (before, after, before)]  # noqa: B023
    assert hashes[0] != hashes[1]
    assert hashes[0] == hashes[2]
