"""The testing kit itself: clusters, operators, and the runner of the command line."""

import pathlib

import kopf
import pytest
from kopf.testing import Cluster, KopfRunner, Refused

FILE = pathlib.Path(__file__).with_name("operator.py")
POD = """
apiVersion: v1
kind: ConfigMap
metadata: {name: one, labels: {kind: first}}
data: {a: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two}
"""


def test_the_runner_of_the_command_line_runs_in_the_cluster(cluster, make):
    args = ["run", "-n", cluster.namespace, str(FILE)]
    with KopfRunner(args, cluster=cluster, timeout=10, registry=kopf.OperatorRegistry()) as runner:
        make()
        cluster.wait_for("widgets", "one", {"status": {"greet": {"greeting": "Hello, one!"}}})
    assert runner.exit_code == 0
    assert "Handler 'greet' succeeded." in runner.output


def test_handlers_can_be_declared_in_the_test(cluster, make, kopf_operator):
    before = kopf.get_default_registry()

    def handlers():
        @kopf.on.create("widgets", id="size_up")
        def size_up(spec, **_):
            return spec["size"] + 1

    kopf_operator(handlers)
    make(spec={"size": 41})
    cluster.wait_for("widgets", "one", {"status": {"size_up": 42}})
    assert kopf.get_default_registry() is before


def test_yaml_is_applied_and_applied_again(kopf_cluster):
    made = kopf_cluster.apply(POD)
    assert [body["metadata"]["name"] for body in made] == ["one", "two"]
    again = kopf_cluster.apply(POD.replace("a: b", "c: d"))
    assert again[0]["data"] == {"a": "b", "c": "d"}
    assert {it["metadata"]["name"] for it in kopf_cluster.list("cm")} >= {"one", "two"}
    assert [it["metadata"]["name"] for it in kopf_cluster.list("configmaps", labels="kind=first")] == ["one"]
    kopf_cluster.delete("cm", "two")
    kopf_cluster.wait_until_gone("cm", "two")
    assert kopf_cluster.find("ConfigMap", "two") is None


def test_refusals_say_why(kopf_cluster):
    with pytest.raises(Refused, match="NotFound") as error:
        kopf_cluster.get("configmaps", "nope")
    assert error.value.code == 404
    with pytest.raises(LookupError, match="Is its definition"):
        kopf_cluster.get("unheardofs", "nope")


def test_what_does_not_come_is_told_with_the_last_state(kopf_cluster):
    kopf_cluster.apply(POD)
    with pytest.raises(TimeoutError, match="a: b"):
        kopf_cluster.wait_for("cm", "one", {"data": {"a": "c"}}, timeout=0.1)


def test_clusters_are_apart():
    with Cluster() as one, Cluster() as two:
        one.apply(POD)
        assert one.url != two.url
        assert two.find("cm", "one") is None


def test_the_objects_survive_in_a_file(tmp_path):
    from kopf._kits.clusters import state

    with Cluster() as first:
        first.apply(POD)
        owner = first.get("cm", "one")["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": owner}
        first.patch("cm", "two", {"metadata": {"ownerReferences": [reference]}})
        kept = state.save(first, tmp_path / "state.json")
        names = {it["metadata"]["name"] for it in first.list("cm")}
    with Cluster() as second:
        assert state.load(second, tmp_path / "state.json") == kept
        assert {it["metadata"]["name"] for it in second.list("cm")} == names
        [back] = second.get("cm", "two")["metadata"]["ownerReferences"]
        assert back["uid"] == second.get("cm", "one")["metadata"]["uid"] != owner
