"""Changes in a handler's patch are written to the object, together with Kopf's own changes."""

import pytest


def test_stanzas_are_merged(run, make, handled):
    run()
    make(spec={"size": 1, "other": 2}, labels={"way": "fields"})
    body = handled(condition={"status": {"phase": "Ready"}})
    assert body["spec"] == {"size": 100, "other": 2}
    assert body["metadata"]["labels"] == {"way": "fields", "patched": "yes"}
    assert body["metadata"]["annotations"]["example.com/note"] == "hello"


def test_functions_see_and_change_the_newest_state(run, make, handled):
    run()
    make(spec={"items": [1, 2]}, labels={"way": "function"})
    handled(condition={"spec": {"items": [1, 2, 3]}})


def test_handlers_of_events_can_patch_too(run, make, cluster):
    run()
    make(labels={"way": "event"})
    cluster.wait_for("widgets", "one", {"status": {"events": 1}})


DENIED = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.networking.error_backoffs = []
    settings.queueing.error_delays = [0.1]

@kopf.on.update("widgets")
def grow(patch, spec, memo, **_):
    memo.calls.append(("grow", spec["size"]))
    if spec["size"] == 9:
        patch.spec["replicas"] = 90
    patch.status["grown"] = spec["size"]

@kopf.on.delete("widgets")
def delete(memo, name, **_):
    memo.calls.append(("delete", name))
"""
RULE = {
    "apiGroups": ["behaviours.example.com"],
    "apiVersions": ["*"],
    "operations": ["UPDATE"],
    "resources": ["widgets"],
}
FEW_REPLICAS = {
    "expression": "!has(object.spec.replicas) || object.spec.replicas < 50",
    "reason": "Forbidden",
    "message": "too many replicas",
}


def policies(**spec):
    """A policy and its binding, for the `spec` of the policy."""
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "few"}}
    binding = {"policyName": "few", "validationActions": ["Deny"]}
    yield group | {"kind": "ValidatingAdmissionPolicy", "spec": spec}
    yield group | {"kind": "ValidatingAdmissionPolicyBinding", "spec": binding}


@pytest.mark.kopf_embedded_only
def test_a_denied_part_is_not_written_later_if_a_newer_call_of_its_handler_does_not_set_it(
    run, make, cluster, handled
):
    for item in policies(matchConstraints={"resourceRules": [RULE]}, validations=[FEW_REPLICAS]):
        cluster.create(item)
    running = run(source=DENIED, strict=False)
    make(spec={"size": 1})
    handled()
    for size in (9, 2):
        cluster.patch("widgets", "one", {"spec": {"size": size}})
        cluster.wait_for("widgets", "one", {"status": {"grown": size}}, timeout=60)
    cluster.delete("validatingadmissionpolicybindings", "few")
    cluster.delete("validatingadmissionpolicies", "few")
    cluster.patch("widgets", "one", {"spec": {"size": 3}})
    cluster.wait_for("widgets", "one", {"status": {"grown": 3}}, timeout=60)
    running.settle()
    assert running.of("grow") == [9, 2, 3]
    assert cluster.get("widgets", "one")["spec"] == {"size": 3}


@pytest.mark.kopf_embedded_only
def test_a_patch_that_a_policy_denies_holds_up_neither_changes_nor_the_deletion(run, make, cluster, handled):
    for item in policies(matchConstraints={"resourceRules": [RULE]}, validations=[FEW_REPLICAS]):
        cluster.create(item)
    running = run(source=DENIED, strict=False)
    make(spec={"size": 1})
    handled()
    cluster.patch("widgets", "one", {"spec": {"size": 9}})
    running.until("grow")
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    cluster.wait_for("widgets", "one", {"status": {"grown": 2}}, timeout=60)
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one", timeout=60)
    assert (running.of("grow"), running.of("delete")) == ([9, 2], ["one"])


TOO_LARGE = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.networking.error_backoffs = []
    settings.queueing.error_delays = [0.1]

@kopf.on.create("widgets")
def create(memo, name, patch, **_):
    memo.calls.append(("create", name))
    patch.spec["blob"] = "x" * 2_000_000

@kopf.on.update("widgets")
def grow(memo, spec, patch, **_):
    memo.calls.append(("grow", spec["size"]))
    patch.status["grown"] = spec["size"]

@kopf.on.delete("widgets")
def delete(memo, name, **_):
    memo.calls.append(("delete", name))
"""


def test_a_patch_that_is_too_large_for_etcd_holds_up_neither_changes_nor_the_deletion(run, make, cluster):
    running = run(source=TOO_LARGE, strict=False)
    make(spec={"size": 1})
    running.until("create")
    running.settle()
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    cluster.wait_for("widgets", "one", {"status": {"grown": 2}}, timeout=30)
    cluster.delete("widgets", "one")
    cluster.wait_until_gone("widgets", "one", timeout=30)
    assert (running.of("create"), running.of("grow"), running.of("delete")) == (["one"], [2], ["one"])
