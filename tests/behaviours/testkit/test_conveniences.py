"""Conveniences of the testing kit: asynchronous twins, marks for clusters, durations, plain functions."""

import asyncio
import inspect
import logging
import os
import subprocess
import sys
import textwrap

import kopf
import pytest
from kopf._testing import async_twins
from kopf._testing.cluster import create_unique_namespace
from kopf.testing import Cluster, Operator, UnexpectedError

from tests.support.inspected import WIDGETS

CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {a: b}}"


def greet(spec, patch, logger, **_):
    patch.status["greeting"] = f"Hello, {spec['name']}!"
    logger.info("Greeted.")
    return {"length": len(spec["name"])}


def count():
    @kopf.on.create("configmaps")
    async def count(body, patch, **_):
        if body["data"].get("fail"):
            raise ValueError("Oops.")
        patch.meta.annotations["example.com/keys"] = str(len(body["data"]))


@pytest.mark.kopf_embedded_only
def test_the_removal_of_objects_without_a_connection_does_not_hide_the_error_of_the_test(caplog):
    with (
        Cluster() as served,
        pytest.raises(ValueError, match=r"^The test fails\.$"),
        Cluster("kubeconfig", kubeconfig=served.kubeconfig) as cluster,
    ):
        cluster.apply(CONFIG)
        served.stop()
        raise ValueError("The test fails.")
    assert "These objects of the tests stay there: configmaps/one." in caplog.text


def make_child(served, namespace, body):
    """Create an object as handlers and client libraries do: the instance of the test does not know it."""
    metadata = {"name": "child", "finalizers": ["example.com/stopped-operator"]}
    served.create({**body, "metadata": metadata}, namespace=namespace)


@pytest.mark.kopf_embedded_only
def test_objects_of_handlers_do_not_keep_the_namespace_and_the_crd_of_a_test():
    with Cluster() as served:
        with Cluster("kubeconfig", kubeconfig=served.kubeconfig) as cluster:
            cluster.apply(WIDGETS)
            namespace = create_unique_namespace(cluster)
            make_child(served, namespace, {"apiVersion": "v1", "kind": "ConfigMap"})
            for owner in (namespace, "default"):
                make_child(served, owner, {"apiVersion": "behaviours.example.com/v1", "kind": "Widget"})
            # Without the permission to list them, they are left, and the others are not.
            served.inject("code", 403, verb="list", resource="endpoints")
        served.wait_until_gone("namespaces", namespace, timeout=5)
        served.wait_until_gone("crds", "widgets.behaviours.example.com", timeout=5)


@pytest.mark.kopf_embedded_only
def test_only_namespaces_that_still_exist_at_the_end_are_searched_for_finalizers():
    with Cluster() as served:
        with Cluster("kubeconfig", kubeconfig=served.kubeconfig) as shared:
            for has_child in (False, True):
                with Cluster("kubeconfig", kubeconfig=served.kubeconfig) as cluster:
                    namespace = create_unique_namespace(cluster)
                    if has_child:
                        make_child(served, namespace, {"apiVersion": "v1", "kind": "ConfigMap"})
                    cluster.hand_over(shared)
                    requests = count_requests(served)
                assert requests() == 1, "only the removal of the namespace"
            requests = count_requests(served)
            assert served.get("namespaces", namespace)["status"]["phase"] == "Terminating"
        assert requests() > 10
        served.wait_until_gone("namespaces", namespace, timeout=5)


@pytest.mark.kopf_embedded_only
def test_namespaces_whose_contents_have_no_finalizers_are_not_searched():
    """The namespace controller of a real cluster reports it."""
    condition = {
        "type": "NamespaceFinalizersRemaining",
        "status": "False",
        "reason": "ContentHasNoFinalizers",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    with Cluster() as served:
        with Cluster("kubeconfig", kubeconfig=served.kubeconfig) as shared:
            with Cluster("kubeconfig", kubeconfig=served.kubeconfig) as cluster:
                namespace = create_unique_namespace(cluster)
                make_child(served, namespace, {"apiVersion": "v1", "kind": "ConfigMap"})
                cluster.hand_over(shared)
            patch = {"status": {"conditions": [condition]}}
            served.patch("namespaces", namespace, patch, subresource="status")
            requests = count_requests(served)
        assert requests() == 1, "only the list of the namespaces"


def count_requests(cluster):
    before = cluster.activity_marker[1]
    return lambda: cluster.activity_marker[1] - before


@pytest.mark.kopf_embedded_only
def test_everything_can_be_awaited():
    async def main():
        async with Cluster() as cluster, Operator(cluster, count) as operator:
            ticks = asyncio.create_task(ticking())
            await cluster.aio.apply(CONFIG)
            expected = {"metadata": {"annotations": {"example.com/keys": "1"}}}
            found = await cluster.aio.wait_for("cm", "one", expected)
            assert found["data"] == {"a": "b"}
            await operator.aio.wait_until_idle()
            await cluster.aio.advance("1 day")
            assert [it["metadata"]["name"] for it in await cluster.aio.list("cm")] == ["one"]
            await cluster.aio.delete("cm", "one")
            await cluster.aio.wait_until_gone("cm", "one")
            assert await cluster.aio.find("cm", "one") is None
            ticks.cancel()
            await operator.aio.stop()
            assert not operator.running
            await operator.aio.start()
        assert not operator.running

    async def ticking():
        while True:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.kopf_embedded_only
def test_unexpected_errors_fail_asynchronous_blocks():
    async def main():
        async with Cluster() as cluster, Operator(cluster, count):
            await cluster.aio.create(CONFIG.replace("a: b", "fail: yes please"))
            await cluster.aio.wait_until_idle()

    with pytest.raises(UnexpectedError, match=r"'count' has failed: ValueError: Oops\."):
        asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("twin, original", [("AsyncCluster", Cluster), ("AsyncOperator", Operator)])
def test_twins_have_the_arguments_of_the_methods(twin, original):
    methods = {
        name: method
        for name, method in vars(getattr(async_twins, twin)).items()
        if inspect.iscoroutinefunction(method)
    }
    assert {"wait_until_idle"} < set(methods)
    for name, method in methods.items():
        assert inspect.signature(method) == inspect.signature(getattr(original, name)), name


@pytest.mark.kopf_embedded_only
@pytest.mark.kopf_cluster(controllers=True)
class TestMarks:
    POD_SET = """
        apiVersion: apps/v1
        kind: ReplicaSet
        metadata: {name: web}
        spec:
          replicas: 1
          selector: {matchLabels: {app: web}}
          template:
            metadata: {labels: {app: web}}
            spec: {containers: [{name: web, image: web}]}
    """

    def test_options_of_the_class(self, kopf_cluster):
        kopf_cluster.apply(textwrap.dedent(self.POD_SET))
        kopf_cluster.wait_for("replicasets", "web", {"status": {"readyReplicas": 1}})

    @pytest.mark.kopf_cluster(controllers=False, tls=False)
    def test_the_closest_mark_wins(self, kopf_cluster):
        assert kopf_cluster.url.startswith("http://")
        kopf_cluster.apply(textwrap.dedent(self.POD_SET))
        kopf_cluster.wait_until_idle()
        assert kopf_cluster.list("pods") == []


@pytest.mark.parametrize("mark", ["contollers=True", "True"])
def test_wrong_options_end_the_session(tmp_path, mark):
    source = f"import pytest\n@pytest.mark.kopf_cluster({mark})\ndef test_it(kopf_cluster):\n    pass\n"
    (tmp_path / "test_it.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200"},
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert "@pytest.mark.kopf_cluster accepts only the keyword arguments access, controllers," in done.stderr


def test_handlers_are_plain_functions(caplog):
    """Decorators return the function unchanged: a test can call it with the arguments that it names."""
    handler = kopf.on.create("guests", registry=kopf.OperatorRegistry())(greet)
    assert handler is greet
    body = kopf.Body({"spec": {"name": "Alice"}})
    patch = kopf.Patch()
    with caplog.at_level(logging.INFO):
        result = greet(spec=body.spec, patch=patch, logger=logging.getLogger("test"))
    assert result == {"length": 5}
    assert patch == {"status": {"greeting": "Hello, Alice!"}}
    assert caplog.messages == ["Greeted."]
