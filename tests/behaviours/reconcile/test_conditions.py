"""The argument `conditions` in other handlers. Section 1.9."""

import pytest

HANDLERS_RAISE = True

NAMING = """
import kopf

@kopf.on.create("widgets")
def created(spec, conditions, memo, **_):
    conditions.set("Created", True, reason="Done")
    memo.calls.append(("created", sorted(conditions)))
    if spec.get("fails"):
        raise kopf.PermanentError("boo")

@kopf.on.update("widgets", field="spec")
async def updated(conditions, memo, **_):
    memo.calls.append(("updated", sorted(conditions)))
    conditions.set("Updated", None, reason="Seen", message="m")
    conditions.drop("Created")

@kopf.timer("widgets", interval=3600, initial_delay=3600)
def timed(conditions, memo, **_):
    conditions.set("Timed", False, reason="Late")
    memo.calls.append(("timed", sorted(conditions)))

@kopf.on.event("widgets")
def unnamed(memo, **kwargs):
    if "conditions" in kwargs:
        memo.calls.append(("unnamed", None))
"""


def conditions_of(body):
    return {item["type"]: item for item in body.get("status", {}).get("conditions", [])}


def test_1_9_change_handlers_set_conditions(run, make, cluster, handled):
    running = run(source=NAMING)
    make()
    first = handled(condition=lambda body: "Created" in conditions_of(body))
    created = conditions_of(first)["Created"]
    assert (created["status"], created["reason"]) == ("True", "Done")
    assert created["observedGeneration"] == first["metadata"]["generation"]
    foreign = {"type": "Foreign", "status": "True", "reason": "R", "message": "", "extra": 1}
    listed = [foreign, *first["status"]["conditions"]]
    cluster.patch("widgets", "one", {"status": {"conditions": listed}}, subresource="status")
    cluster.patch("widgets", "one", {"spec": {"size": 2}})
    body = cluster.wait_for("widgets", "one", lambda body: "Updated" in conditions_of(body))
    assert body["status"]["conditions"][0] == foreign
    assert sorted(conditions_of(body)) == ["Foreign", "Updated"]
    assert conditions_of(body)["Updated"]["status"] == "Unknown"
    running.settle()
    assert running.of("updated") == [["Created", "Foreign"]]
    assert running.of("unnamed") == []


def test_1_9_conditions_are_written_also_after_a_failure(run, make, cluster, handled):
    run(source=NAMING)
    make(spec={"size": 1, "fails": True})
    assert handled(condition=lambda body: "Created" in conditions_of(body))


@pytest.mark.kopf_embedded_only
def test_1_9_timers_set_conditions(run, make, cluster):
    cluster.freeze()
    running = run(source=NAMING)
    make()
    running.settle()
    cluster.advance(3601)
    assert running.of("timed") == [["Created", "Timed"]]
    body = cluster.get("widgets", "one")
    assert sorted(conditions_of(body)) == ["Created", "Timed"]
    # The same condition again is not written.
    version = body["metadata"]["resourceVersion"]
    cluster.advance(3600)
    assert len(running.of("timed")) == 2
    assert cluster.get("widgets", "one")["metadata"]["resourceVersion"] == version


STRICT = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.behaviours.example.com}
spec:
  group: behaviours.example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
            status: {type: object, properties: {phase: {type: string}}}
"""
PRUNED = """
import kopf

@kopf.on.reconcile("gadgets", condition="Reconciled")
def sync(name, patch, conditions, memo, **_):
    conditions.set("Ready", True, reason="Fine")
    patch.status["phase"] = "done"
    memo.calls.append(("sync", name))
"""


def test_1_9_with_a_schema_without_conditions_nothing_fails(run, cluster):
    cluster.apply(STRICT)
    running = run(source=PRUNED)
    for number, name in enumerate(("one", "two"), start=1):
        kind = {"apiVersion": "behaviours.example.com/v1", "kind": "Gadget"}
        cluster.create({**kind, "metadata": {"name": name}})
        running.until("sync", number)
        assert cluster.wait_for("gadgets", name, {"status": {"phase": "done"}})["status"] == {"phase": "done"}
    cluster.patch("gadgets", "one", {"spec": {"size": 2}})
    running.until("sync", 3)
    running.settle()
    assert running.of("sync") == ["one", "two", "one"]
