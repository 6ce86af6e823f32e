"""The rules of `kopf doctor` that need no cluster: the clock of the server, and pruned statuses."""

import base64
import email.utils

import pytest
from kopf._cli.access import KnownRules
from kopf._cli.cluster_features import certificates_end
from kopf._cli.cluster_state import is_status_pruned
from kopf._cli.doctor import clock_offset, describe_clock
from kopf._cli.permissions import Permission

NOW = 1_767_225_600.0


def date(moment):
    return email.utils.formatdate(moment, usegmt=True)


@pytest.mark.parametrize("error", [-3600, -31, -1.5, 0, 1.5, 31, 3600])
@pytest.mark.parametrize("fraction", [0, 0.3, 0.99])
def test_the_offset_of_the_clock_is_found_within_a_second(error, fraction):
    """CLI-5"""
    sent = NOW + fraction
    found = clock_offset(date(int(sent + 0.05 + error)), sent, sent + 0.1)
    assert found is not None and abs(found - error) <= 1.1
    assert error != 0 or found == 0


@pytest.mark.parametrize("header", [None, "", "yesterday"])
def test_without_a_date_the_offset_is_unknown(header):
    assert clock_offset(header, NOW, NOW) is None


@pytest.mark.parametrize(
    ("offset", "level", "text"),
    [
        (0.0, "ok", "that of the server is the same as here"),
        (2.5, "warn", "that of the server is 2.5 s ahead"),
        (-30.5, "fail", "that of the server is 30.5 s behind"),
        (3600.0, "fail", "that of the server is 1h (3600 s) ahead"),
    ],
)
def test_the_level_depends_on_the_offset(offset, level, text):
    finding = describe_clock(offset)
    assert finding.level == level and finding.text.startswith(text)


PRESERVED = {"x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("schema", "is_pruned"),
    [
        ({"type": "object"}, True),
        ({"type": "object", "properties": {"status": {"type": "object"}}}, True),
        ({"type": "object", **PRESERVED}, False),
        ({"type": "object", "properties": {"status": {"type": "object", **PRESERVED}}}, False),
        ({"type": "object", "properties": {"status": {"properties": {"a": {"type": "string"}}}}}, False),
        ({"type": "object", "properties": {"status": {"additionalProperties": True}}}, False),
    ],
)
def test_statuses_without_fields_are_pruned(schema, is_pruned):
    assert is_status_pruned({"schema": {"openAPIV3Schema": schema}}) is is_pruned


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ({"verbs": ["patch"], "apiGroups": ["g"], "resources": ["sites/status"]}, True),
        ({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, True),
        ({"verbs": ["patch"], "apiGroups": ["g"], "resources": ["*/status"]}, True),
        ({"verbs": ["patch"], "apiGroups": ["g"], "resources": ["sites"]}, False),
        ({"verbs": ["get"], "apiGroups": ["g"], "resources": ["sites/status"]}, False),
        ({"verbs": ["patch"], "apiGroups": [""], "resources": ["sites/status"]}, False),
        (
            {"verbs": ["patch"], "apiGroups": ["g"], "resources": ["sites/status"], "resourceNames": ["a"]},
            False,
        ),
    ],
)
def test_rules_are_matched_as_by_rbac(rule, allowed):
    assert KnownRules([rule], True).allow(Permission("patch", "sites/status", "g")) is allowed


def test_rules_for_names_grant_only_these():
    rule = {"verbs": ["get"], "apiGroups": ["g"], "resources": ["leases"], "resourceNames": ["a"]}
    rules = KnownRules([rule], True)
    assert rules.allow(Permission("get", "leases", "g", name="a"))
    assert not rules.allow(Permission("get", "leases", "g", name="b"))


def test_without_certificates_their_end_is_unknown():
    assert certificates_end("") is None and certificates_end("bm9uc2Vuc2U=") is None
    assert certificates_end(base64.b64encode(b"no certificate").decode()) is None
