"""A small suite of an operator's tests, which `test_plugin.py` runs on clusters of all kinds. All of its
tests use the same object names, so missing isolation between them would be found.
"""

import kopf
import pytest

GADGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.plugin.example.com}
spec:
  group: plugin.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
GADGET = {"apiVersion": "plugin.example.com/v1", "kind": "Gadget", "metadata": {"name": "one"}}


@pytest.fixture
def calls(kopf_cluster, kopf_operator):
    kopf_cluster.apply(GADGETS)
    called = []

    def handlers():
        @kopf.on.create("gadgets", id="greet")
        def greet(namespace, spec, **_):
            called.append((namespace, spec["number"]))
            return spec["number"]

        @kopf.on.delete("gadgets", id="part")
        def part(spec, **_):
            called.append(("deleted", spec["number"]))

    kopf_operator(handlers)
    return called


@pytest.mark.parametrize("number", range(4))
def test_a_handler_is_called_for_the_object_of_this_test_only(kopf_cluster, calls, number):
    kopf_cluster.create({**GADGET, "spec": {"number": number}})
    kopf_cluster.wait_for("gadgets", "one", {"status": {"greet": number}})
    assert calls == [(kopf_cluster.namespace, number)]


@pytest.mark.parametrize("number", range(2))
def test_objects_are_listed_patched_and_deleted(kopf_cluster, calls, number):
    kopf_cluster.apply([{**GADGET, "spec": {"number": number}}])
    kopf_cluster.wait_for("gadget", "one", lambda it: it is not None and "status" in it)
    kopf_cluster.patch("gadgets", "one", {"metadata": {"labels": {"mine": "yes"}}})
    found = kopf_cluster.list("gadgets.plugin.example.com", labels="mine=yes")
    assert [it["metadata"]["name"] for it in found] == ["one"]
    kopf_cluster.delete("gadgets", "one")
    kopf_cluster.wait_until_gone("gadgets", "one")
    assert calls[-1] == ("deleted", number)


def test_objects_of_handlers_and_clients_are_removed(kopf_cluster, calls):
    """The fixture does not know this object, and its finalizer is that of a stopped operator."""
    kopf_cluster.api.create({**GADGET, "spec": {"number": 1}})
    kopf_cluster.wait_for("gadgets", "one", {"status": {"greet": 1}})
    assert kopf_cluster.get("gadgets", "one")["metadata"]["finalizers"]


def test_events_of_an_object_are_found(kopf_cluster, kopf_operator):
    def handlers():
        @kopf.on.create("configmaps", id="post")
        def post(body, **_):
            kopf.event(body, type="Normal", reason="Seen", message="It was seen.")

    operator = kopf_operator(handlers)
    kopf_cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}")
    kopf_cluster.wait_for("configmaps", "one", lambda it: "annotations" in it["metadata"])
    operator.stop()  # sends the queued events
    assert "It was seen." in [it["message"] for it in kopf_cluster.events("one")]


def test_there_is_a_file_for_other_clients(kopf_cluster):
    assert kopf_cluster.url in kopf_cluster.kubeconfig.read_text()


@pytest.mark.kopf_embedded_only
def test_faults_and_the_request_log(kopf_cluster, calls):
    kopf_cluster.inject("conflict", verb="patch", resource="gadgets", times=1)
    kopf_cluster.create({**GADGET, "spec": {"number": 1}})
    kopf_cluster.wait_until_idle()
    assert [it.code for it in kopf_cluster.requests if it.method == "PATCH"] == [409]
    kopf_cluster.advance(1)
    kopf_cluster.wait_for("gadgets", "one", {"status": {"greet": 1}})


@pytest.mark.kopf_embedded_only
def test_time(kopf_cluster, calls):
    kopf_cluster.freeze()
    before = kopf_cluster.now
    kopf_cluster.advance(60)
    assert (kopf_cluster.now - before).total_seconds() == 60
