"""The forms of resource selectors, and the resources that they select."""

import re

import kopf
import pytest
from kopf._intents.causes import ChangingCause
from kopf._intents.registries import ChangingRegistry, resource_handlers
from kopf._intents.selectors import EVERYTHING, Selector, SelectorMapping, is_served, match_namespace
from kopf._objects.resources import Resource

PODS = Resource("", "v1", "pods", kind="Pod", singular="pod", shortcuts=frozenset({"po"}))
METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", kind="PodMetrics", singular="pod")
EVENTS = Resource("", "v1", "events", kind="Event")
OLD = Resource("apps", "v1beta1", "deployments", preferred=False)


@pytest.mark.contract("engine 1.2", "api 2.5")
@pytest.mark.parametrize(
    "args, fields",
    [
        (("pods",), dict(any_name="pods")),
        (("pods.v1",), dict(any_name="pods", version="v1")),
        (("pods.v1.",), dict(any_name="pods", version="v1", group="")),
        (("deployments.apps",), dict(any_name="deployments", group="apps")),
        (("x.v1alpha2.foo.bar",), dict(any_name="x", version="v1alpha2", group="foo.bar")),
        (("a.v1x.b",), dict(any_name="a", group="v1x.b")),
        (("apps", "deployments"), dict(any_name="deployments", group="apps")),
        (("v1", "pods"), dict(any_name="pods", group="", version="v1")),
        (("apps/v1", "deployments"), dict(any_name="deployments", group="apps", version="v1")),
        (("apps", "v1", "deployments"), dict(any_name="deployments", group="apps", version="v1")),
        ((EVERYTHING,), dict(any_name=EVERYTHING)),
        (("g/v1", EVERYTHING), dict(any_name=EVERYTHING, group="g", version="v1")),
    ],
)
def test_positional_forms(args, fields):
    assert Selector(*args) == Selector(**fields)


@pytest.mark.contract("engine 1.2")
@pytest.mark.parametrize(
    "args, kwargs, message",
    [
        ((), {}, "Unspecific resource with no names."),
        ((), {"group": "g"}, "Unspecific resource with no names."),
        (("x",), {"kind": "y"}, "Ambiguous resource specification with"),
        (("",), {}, "Names must not be empty strings"),
        ((print, "x"), {}, "The callable filter cannot have any other selectors."),
        (("a", "b", "c", "d"), {}, "Too many positional arguments"),
    ],
)
def test_invalid_selectors_are_rejected(args, kwargs, message):
    with pytest.raises(TypeError, match=message):
        Selector(*args, **kwargs)


def test_repr_has_only_what_is_given():
    assert repr(Selector("apps", "deployments")) == "Selector(group='apps', any_name='deployments')"


@pytest.mark.parametrize("name", ["pods", "Pod", "pod", "po"])
def test_any_name_selects_by_all_names(name):
    assert Selector(name).check(PODS)


@pytest.mark.contract("observed 14")
def test_core_resources_win_over_the_same_named_ones():
    assert set(Selector("pods").select([PODS, METRICS])) == {PODS}
    assert set(Selector(EVERYTHING).select([PODS, METRICS])) == {PODS, METRICS}


def test_a_name_of_several_resources_is_ambiguous():
    others = [METRICS, Resource("example.com", "v1", "pods")]
    assert Selector("pods").is_ambiguous(Selector("pods").select(others))
    assert not Selector("pods").is_ambiguous(Selector("pods").select([PODS, *others]))
    assert not Selector(EVERYTHING).is_ambiguous(others)


def test_functions_select_among_the_resources_of_their_groups_and_versions():
    seen = []
    selector = Selector(lambda resource: seen.append(resource) or resource.group == "")
    assert set(selector.select([PODS, METRICS, EVENTS])) == {PODS}
    assert seen == [PODS, METRICS]


def test_events_are_selected_only_when_named():
    assert not Selector(EVERYTHING).check(EVENTS)
    assert not Selector(lambda resource: True).check(EVENTS)
    assert Selector("events").check(EVENTS)


def test_versions_that_are_not_preferred_are_selected_only_when_named_or_by_functions():
    assert not Selector("deployments").check(OLD)
    assert Selector("deployments.v1beta1").check(OLD)
    assert Selector(lambda resource: True).check(OLD)


def test_handlers_of_a_call_are_for_its_resource_if_they_have_selectors():
    registry, source = ChangingRegistry(), kopf.OperatorRegistry()
    kopf.on.field("pods", field="spec", id="named", registry=source)(print)
    kopf.on.field("deployments", field="spec", id="other", registry=source)(print)
    for handler in resource_handlers(source):
        registry.append(handler)
    assert [handler.id for handler in registry.get_resource_handlers(PODS)] == ["named/spec"]
    body, patch = kopf.Body({"spec": {"x": 1}}), kopf.Patch()
    cause = ChangingCause(
        logger=None, indices={}, memo=None, resource=PODS, patch=patch, body=body, initial=False,
        reason=kopf.Reason.CREATE, new=body,
    )  # fmt: skip
    assert [handler.id for handler in registry.get_handlers(cause)] == ["named/spec"]


@pytest.mark.contract("api 2.5")
def test_mappings_accept_anything_that_selects():
    mapping = SelectorMapping({"pods": 1, ("v1", "pods"): 2, EVERYTHING: 3, ("apps", "deployments"): 4})
    assert mapping.collect(PODS) == [1, 2, 3]
    assert mapping["pods"] == 1
    assert all(isinstance(key, Selector) for key in mapping)
    with pytest.raises(TypeError, match="Unsupported selector type: 5"):
        mapping[5] = 1
    with pytest.raises(TypeError, match="Unsupported selector type"):
        assert 5 in mapping


@pytest.mark.parametrize(
    "name, pattern, expected",
    [
        ("a", "a", True),
        ("ab", "a*", True),
        ("ab", "a?,b", True),
        ("b", "!a", True),
        ("a", "!a", False),
        ("ab", "a*,!ab", False),
        ("ab", "!a*,ab", True),
    ],
)
def test_namespace_patterns(name, pattern, expected):
    assert match_namespace(name, pattern) is expected


def test_all_namespaces_are_served_without_patterns():
    assert is_served("ns", [])
    assert is_served("ns", ["other", re.compile("n.")])
    assert not is_served("ns", ["other", re.compile("n")])


def test_selector_is_not_public():
    assert not hasattr(kopf, "Selector")
