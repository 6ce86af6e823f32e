"""The operator of Dask, as it is in the registry: it makes a cluster under both frameworks."""

import pathlib

CONTAINER = {"name": "x", "image": "daskdev/dask", "args": ["dask", "scheduler"]}
SERVICE = {
    "type": "ClusterIP",
    "selector": {"dask.org/cluster-name": "dask", "dask.org/component": "scheduler"},
    "ports": [{"name": "tcp-comm", "port": 8786}, {"name": "http-dashboard", "port": 8787}],
}
SPEC = {
    "worker": {"replicas": 2, "spec": {"containers": [{**CONTAINER, "args": ["dask", "worker"]}]}},
    "scheduler": {"spec": {"containers": [CONTAINER]}, "service": SERVICE},
}


def test_a_cluster_of_dask_is_made(start, kinds, desk, site, namespace):
    package = pathlib.Path(site) / "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds"
    files = sorted(package.glob("*.yaml"))
    assert len(files) >= 4
    resources = {resource.plural: resource for path in files for resource in kinds.apply_file(path)}
    clusters, deployments = desk(resources["daskclusters"]), desk(kinds.deployments)

    run = start("-m", "dask_kubernetes.operator.controller", "--verbose", "-n", namespace)
    clusters.create("DaskCluster", "dask", spec=SPEC)

    # The scheduler with its service, then the group of workers, and then its workers.
    scheduler = deployments.wait("dask-scheduler", timeout=60)
    assert scheduler["metadata"]["ownerReferences"][0]["kind"] == "DaskCluster"
    desk(kinds.services).wait("dask-scheduler")
    group = desk(resources["daskworkergroups"]).wait(
        "dask-default", lambda body: body["metadata"].get("ownerReferences")
    )
    assert group["metadata"]["ownerReferences"][0]["name"] == "dask"

    def workers():
        found = deployments.cluster.request("GET", kinds.deployments.path(namespace))["items"]
        return [i for i in found if i["metadata"]["labels"].get("dask.org/component") == "worker"]

    run.wait_for_log(r"Scaled worker group dask-default up to 2 workers\.", timeout=60)
    assert len(workers()) == 2
    clusters.wait("dask", lambda body: body["status"]["phase"] in ("Pending", "Running"))
    assert "failed with an exception" not in run.log
    assert run.stop() == 0
