"""Declarations of caches. Section 2.1, rules K3, K6, K7."""

import kopf
import pytest


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


def test_2_1_the_id_is_the_plural_name_by_default(registry):
    for number, (arguments, expected) in enumerate(
        [
            (("pods",), "pods"),
            (("apps", "v1", "deployments"), "deployments"),
            (("things.example.com",), "things"),
        ]
    ):
        assert repr(kopf.cache(*arguments, registry=registry)) == f"<Cache {expected!r}>", number
    assert repr(kopf.cache(None, plural="jobs", registry=registry)) == "<Cache 'jobs'>"
    assert repr(kopf.cache(None, kind="Pod", id="other", registry=registry)) == "<Cache 'other'>"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"labels": {"a": lambda value, **_: True}}, TypeError, "functions are not possible"),
        ({"labels": {"a": "b c"}}, ValueError, "no value of a label"),
        ({"labels": {"a b": "c"}}, ValueError, "no label"),
        ({"labels": 1}, TypeError, "labels="),
        ({"fields": "a=b"}, TypeError, "fields="),
        ({"fields": {"spec.nodeName": 1}}, ValueError, "field selectors"),
        ({"namespaces": "default"}, TypeError, "namespaces="),
        ({"namespaces": ["a-*"]}, ValueError, "without patterns"),
        ({"namespaces": []}, ValueError, "namespaces="),
        ({"by": "spec.x"}, TypeError, "by="),
        ({"by": {"a-b": "spec.x"}}, ValueError, "argument of select"),
        ({"by": {"owner": "spec.x"}}, ValueError, "another argument"),
        ({"by": {"x": "spec.x[0]"}}, ValueError, "no other brackets"),
        ({"by": {"x": "spec..x"}}, ValueError, "no other brackets"),
        ({"by": {"x": 1}}, TypeError, "paths and functions"),
        ({"drop": "status"}, TypeError, "drop="),
        ({"drop": ["metadata.name"]}, ValueError, "cannot drop 'metadata.name'"),
        ({"drop": [""]}, ValueError, "drop="),
        ({"drop": ["spec"], "by": {"x": "spec.x[*].y"}}, ValueError, "needed"),
        ({"id": "a-b"}, ValueError, "id="),
        ({"id": "body"}, ValueError, "another argument"),
        ({"id": 1}, TypeError, "id="),
    ],
)
def test_2_1_bad_options_are_rejected(registry, options, error, text):
    with pytest.raises(error, match=text):
        kopf.cache("pods", **options, registry=registry)


def test_2_1_coroutine_functions_compute_no_keys(registry):
    async def compute(**_):
        return None

    with pytest.raises(TypeError, match="synchronous"):
        kopf.cache("pods", by={"x": compute}, registry=registry)


@pytest.mark.parametrize("selector", [{"category": "all"}, {"kind": "Pod"}])
def test_2_1_a_cache_needs_a_kind_with_a_name(registry, selector):
    with pytest.raises(ValueError):
        kopf.cache(None, **selector, registry=registry)


def test_2_1_everything_is_not_a_kind(registry):
    with pytest.raises(ValueError, match="single kind"):
        kopf.cache(kopf.EVERYTHING, registry=registry)


def test_2_1_ids_are_unique(registry):
    kopf.cache("pods", registry=registry)
    with pytest.raises(ValueError, match="another cache"):
        kopf.cache("pods", registry=registry)

    @kopf.index("pods", id="named", registry=registry)
    def named(**_):
        return None

    with pytest.raises(ValueError, match="an index"):
        kopf.cache("pods", id="named", registry=registry)


def test_k6_a_cache_without_a_running_operator_cannot_be_read(registry):
    cache = kopf.cache("pods", registry=registry)
    for read in (lambda: cache.get("x"), lambda: len(cache), lambda: cache.is_ready, lambda: list(cache)):
        with pytest.raises(LookupError, match="no running operator"):
            read()


def test_0_1_the_names_are_not_imported_by_an_asterisk():
    assert kopf.Cache and kopf.cache
    assert not {"Cache", "cache"} & set(kopf.__all__)
