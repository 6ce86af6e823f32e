"""The summary of what an operator serves."""

import re

import kopf
import pytest
from kopf._cli.new_project import pluralize
from kopf._runtime import banner
from kopf._runtime.running import resource_handlers


@pytest.mark.parametrize(
    "selectors, text",
    [
        ([], "0 handlers"),
        (["guests"], "1 handler of 1 kind (guests)"),
        (["guests", "guests", "pods.v1"], "3 handlers of 2 kinds (guests, pods.v1)"),
        (["a", "b", "c", "d", "e", "f", "g"], "7 handlers of 7 kinds (a, b, c, d, e and 2 more)"),
        ([kopf.EVERYTHING], "1 handler of kinds that match selectors"),
        (
            ["guests", lambda resource, **_: True],
            "2 handlers of kinds that match selectors and of guests",
        ),
    ],
)
def test_handlers_and_kinds(selectors, text):
    registry = kopf.OperatorRegistry()
    for selector in selectors:
        kopf.on.event(selector, registry=registry)(lambda **_: None)
    assert banner.describe_handlers(resource_handlers(registry)) == text


@pytest.mark.parametrize(
    "namespaces, text",
    [
        ([], "all namespaces"),
        (["default"], "namespace default"),
        (["team-*"], "namespaces team-*"),
        (["a-*,!a-b", re.compile("x.*")], "namespaces a-*,!a-b, x.*"),
    ],
)
def test_namespaces(namespaces, text):
    assert banner.describe_namespaces(namespaces) == text


@pytest.mark.parametrize(
    "singular, plural",
    [
        ("guest", "guests"),
        ("policy", "policies"),
        ("gateway", "gateways"),
        ("class", "classes"),
        ("mesh", "meshes"),
        ("index", "indexes"),
    ],
)
def test_plurals_of_new_projects(singular, plural):
    assert pluralize(singular) == plural
