"""The cache operator: its tests pass, its manifests apply, and its permissions are enough, and not more."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest
import yaml
from kopf.testing import Cluster

from tests.support.operators import Operator

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "40-cache"
BASE = FOLDER / "deploy" / "base"
MANIFESTS = [
    body
    for path in ("rbac", "deployment")
    for body in yaml.safe_load_all((BASE / f"{path}.yaml").read_text())
]
ROLES = [body for body in MANIFESTS if body["kind"] == "ClusterRole"]
CACHE = {
    "apiVersion": "cache.examples.kopf.dev/v1",
    "kind": "Cache",
    "metadata": {"name": "sessions"},
    "spec": {"replicas": 1, "backup": {"claim": "backups"}},
}
PERMISSIONS = [
    (resource, verb)
    for role in ROLES
    for rule in role["rules"]
    for resource in rule["resources"]
    for verb in rule["verbs"]
]
# The embedded API server does not require `create` for server-side apply that creates an object.
ON_CONTROL_PLANE = [("statefulsets", "create"), ("services", "create"), ("secrets", "create")]
ON_EMBEDDED = [it for it in PERMISSIONS if it not in ON_CONTROL_PLANE]
ACCOUNT = "/api/v1/namespaces/cache-system/serviceaccounts/cache-operator/token"


@pytest.mark.parametrize("kind", ["embedded", "assets"])
def test_the_tests_of_the_example(kind, request):
    if kind == "assets":
        request.getfixturevalue("real_plane")  # skips without its binaries
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", f"--kopf-cluster={kind}"]
    done = subprocess.run(
        [*command, "examples/40-cache"], cwd=ROOT, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@contextlib.contextmanager
def deployed(folder, kubeconfig, token, *options, **environment):
    """Run the operator with the token of its service account."""
    config = yaml.safe_load(pathlib.Path(kubeconfig).read_text())
    config["users"][0]["user"] = {"token": token}
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    keep = {"PATH", "LANG", "TMPDIR"}
    env = {key: value for key, value in os.environ.items() if key in keep}
    env |= {
        "PYTHONUNBUFFERED": "1",
        "HOME": str(folder),
        "KUBECONFIG": str(folder / "kubeconfig"),
        "CALLS_FILE": str(folder / "calls"),
    } | environment
    command = [sys.executable, "-m", "kopf", "run", *options, str(FOLDER / "handlers.py")]
    operator = Operator(command, folder, env)
    try:
        yield operator
    finally:
        operator.close()
        print(operator.log)


@contextlib.contextmanager
def embedded(roles):
    """A server with role-based access control, and everything of the folder in it."""
    with Cluster(access=True, namespace="cache-system") as cluster:
        make_account(cluster, roles)
        yield cluster, cluster.call("POST", ACCOUNT, {"spec": {}})["status"]["token"]


def make_account(cluster, roles):
    """Apply the manifests, with these roles, but for the Deployment."""
    for body in [body for body in MANIFESTS if body["kind"] == "Namespace"]:
        cluster.create(body)
    others = [body for body in MANIFESTS if body["kind"] not in ("Namespace", "Deployment", "ClusterRole")]
    cluster.apply([yaml.safe_load((BASE / "crd.yaml").read_text()), *others, *roles])


def changes_of_users(cluster):
    """Make changes, each when the one before has had its effect, so that all requests are sent. Yields the
    awaited effects: functions that return something true.
    """
    name = "webhooks.cache.examples.kopf.dev"
    yield lambda: (cluster.find("validatingwebhookconfigurations", name) or {}).get("webhooks")
    cluster.create(CACHE)
    yield lambda: cluster.find("statefulsets", "sessions")
    yield lambda: cluster.get("caches", "sessions").get("status", {}).get("conditions")
    cluster.patch("statefulsets", "sessions", {"spec": {"replicas": 5}})
    yield lambda: cluster.get("statefulsets", "sessions")["spec"]["replicas"] == 1
    cluster.delete("services", "sessions")
    yield lambda: cluster.find("services", "sessions")
    yield lambda: cluster.get("caches", "sessions")["metadata"].get("finalizers")
    cluster.delete("caches", "sessions")
    job = f"sessions-backup-{cluster.get('caches', 'sessions')['metadata']['uid'][:8]}"
    yield lambda: cluster.find("jobs", job)
    path = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs/{job}/status"
    cluster.call("PATCH", path, {"status": {"succeeded": 1}})
    yield lambda: cluster.find("caches", "sessions") is None


def wait_until(condition):
    pause, deadline = threading.Event(), time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "This has not happened in time."
        pause.wait(0.05)


def rejected(cluster):
    return {(it.method, it.path) for it in cluster.requests if it.code == 403}


# The handlers themselves need the others: declarations do not show these.
CHECKED = [
    *[("caches", verb) for verb in ("list", "watch", "patch")],
    ("caches/status", "patch"),
    *[(plural, verb) for plural in ("statefulsets", "services") for verb in ("list", "watch")],
    ("events", "create"),
    *[
        (f"{kind}webhookconfigurations", verb)
        for kind in ("validating", "mutating")
        for verb in ("create", "patch")
    ],
]


def check_permissions(folder, cluster, token):
    config = yaml.safe_load(pathlib.Path(cluster.kubeconfig).read_text())
    config["users"][0]["user"] = {"token": token}
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "kopf", "check", "-A", "-o", "json", str(FOLDER / "handlers.py")]
    env = {**os.environ, "HOME": str(folder), "KUBECONFIG": str(folder / "kubeconfig")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout, done.stderr
    problems = json.loads(done.stdout)["problems"]
    assert done.returncode == bool(problems), done.stderr
    assert {problem["kind"] for problem in problems} <= {"permission"}, done.stdout
    return [(problem["permission"]["resource"], problem["permission"]["verb"]) for problem in problems]


def test_the_check_finds_exactly_the_missing_permission(tmp_path):
    with embedded(ROLES) as (cluster, token):
        assert check_permissions(tmp_path, cluster, token) == []
        assert set(CHECKED) < set(PERMISSIONS)
        for resource, verb in PERMISSIONS:
            for role in ROLES:
                rules = [part for rule in role["rules"] for part in without(rule, resource, verb)]
                cluster.patch("clusterroles", role["metadata"]["name"], {"rules": rules})
            expected = [(resource, verb)] if (resource, verb) in CHECKED else []
            assert check_permissions(tmp_path, cluster, token) == expected


def test_permissions_are_enough(tmp_path):
    with (
        embedded(ROLES) as (cluster, token),
        deployed(tmp_path, cluster.kubeconfig, token, "-A") as run,
    ):
        for effect in changes_of_users(cluster):
            wait_until(effect)
        assert run.stop() == 0
        assert rejected(cluster) == set()
        assert len(cluster.requests) > 20


def rules_of_handlers():
    """The rules for the requests of the handlers themselves."""
    for rule in [rule for role in ROLES for rule in role["rules"]]:
        for resource in rule["resources"]:
            verbs = [verb for verb in rule["verbs"] if (resource, verb) not in CHECKED]
            if verbs:
                yield {"apiGroups": rule["apiGroups"], "resources": [resource], "verbs": verbs}


def test_the_printed_permissions_and_those_of_the_handlers_are_enough(tmp_path):
    """DEP-2"""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(list(rules_of_handlers())))
    with Cluster(access=True, namespace="cache-system") as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cache-system"}})
        cluster.apply(BASE / "crd.yaml")
        options = ["--home=cache-system", "--name=cache-operator", "--extra-rules=rules.yaml"]
        command = [sys.executable, "-m", "kopf", "manifests", "-A", *options, str(FOLDER / "handlers.py")]
        env = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        cluster.apply(done.stdout)
        token = cluster.call("POST", ACCOUNT, {"spec": {}})["status"]["token"]
        with deployed(tmp_path, cluster.kubeconfig, token, "-A") as run:
            for effect in changes_of_users(cluster):
                wait_until(effect)
            assert run.stop() == 0
        assert rejected(cluster) == set()


def test_webhooks_are_reached_by_the_service_of_the_manifests(tmp_path):
    [deployment] = [body for body in MANIFESTS if body["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    environment = {it["name"]: it["value"] for it in container["env"]}
    [service] = [body for body in MANIFESTS if body["kind"] == "Service"]
    [port] = service["spec"]["ports"]
    with (
        embedded(ROLES) as (cluster, token),
        deployed(tmp_path, cluster.kubeconfig, token, "-A", **environment),
    ):
        for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            name = "webhooks.cache.examples.kopf.dev"
            found = cluster.wait_for(kind, name, lambda it: it and it.get("webhooks"))
            for webhook in found["webhooks"]:
                reference = webhook["clientConfig"]["service"]
                assert (reference["namespace"], reference["name"]) == ("cache-system", "cache-operator")
                assert (reference["port"], port["targetPort"]) == (port["port"], 9443)
                assert reference["path"].count("/") == 1
                assert webhook["clientConfig"]["caBundle"]


@pytest.mark.parametrize(("resource", "verb"), ON_EMBEDDED, ids=map("-".join, ON_EMBEDDED))
def test_each_permission_is_needed(tmp_path, resource, verb):
    roles = roles_without(resource, verb)
    with embedded(roles) as (cluster, token), deployed(tmp_path, cluster.kubeconfig, token, "-A"):
        for effect in changes_of_users(cluster):
            wait_until(lambda effect=effect: rejected(cluster) or effect())
            if rejected(cluster):
                break
        wait_until(lambda: rejected(cluster))
        assert any(resource.partition("/")[0] in path for _, path in rejected(cluster))


@pytest.fixture
def real_plane(request, control_plane):
    """The control plane; with --embedded, there is none."""
    if request.config.getoption("--embedded"):
        pytest.skip("a real control plane is needed")
    return control_plane


@pytest.fixture
def clean_plane(real_plane):
    """The control plane without webhooks and peerings of other tests; afterwards, it waits until the
    namespace is gone."""
    with Cluster("kubeconfig", kubeconfig=real_plane.write_kubeconfig()) as cluster:
        # Where peerings exist, operators join them, which takes permissions.
        for name in ("kopfpeerings.kopf.dev", "clusterkopfpeerings.kopf.dev"):
            if cluster.find("customresourcedefinitions", name) is not None:
                cluster.delete("customresourcedefinitions", name)
                cluster.wait_until_gone("customresourcedefinitions", name, timeout=60)
        for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            if cluster.find(plural, "webhooks.cache.examples.kopf.dev") is not None:
                cluster.delete(plural, "webhooks.cache.examples.kopf.dev")
    yield real_plane
    with Cluster("kubeconfig", kubeconfig=real_plane.write_kubeconfig()) as cluster:
        cluster.wait_until_gone("namespaces", "cache-system", timeout=60)


@pytest.mark.parametrize(("resource", "verb"), ON_CONTROL_PLANE, ids=map("-".join, ON_CONTROL_PLANE))
def test_each_permission_is_needed_on_a_control_plane(tmp_path, clean_plane, resource, verb):
    kubeconfig = clean_plane.write_kubeconfig()
    with Cluster("kubeconfig", kubeconfig=kubeconfig, namespace="cache-system") as cluster:
        make_account(cluster, roles_without(resource, verb))
        token = cluster.call("POST", ACCOUNT, {"spec": {}})["status"]["token"]
        with deployed(tmp_path, kubeconfig, token, "-A") as run:
            cluster.wait_for(
                "validatingwebhookconfigurations",
                "webhooks.cache.examples.kopf.dev",
                lambda it: it and it.get("webhooks"),
            )
            cluster.create(CACHE)
            run.wait_for_log(rf"{resource}\b.* is forbidden: .* cannot create resource")
            cluster.patch("caches", "sessions", {"metadata": {"finalizers": None}})


def roles_without(resource, verb):
    return [
        {**role, "rules": [less for rule in role["rules"] for less in without(rule, resource, verb)]}
        for role in ROLES
    ]


def without(rule, resource, verb):
    """The rule as one per resource, without this verb for this resource. A rule must have a verb: none exists
    with the name `nothing`.
    """
    for name in rule["resources"]:
        verbs = [it for it in rule["verbs"] if (name, it) != (resource, verb)]
        yield {**rule, "resources": [name], "verbs": verbs or ["nothing"]}


@pytest.fixture
def kubectl(real_plane):
    """A function that runs kubectl on the control plane."""
    found = subprocess.run([ROOT / "scripts/kubectl.sh"], capture_output=True, text=True, timeout=170)
    if found.returncode != 0:
        pytest.skip("there is no kubectl")
    kubeconfig = str(real_plane.write_kubeconfig())

    def run(*args):
        command = [found.stdout.strip(), "--kubeconfig", kubeconfig, *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=90)

    return run


@pytest.mark.parametrize(
    ("overlay", "scope"), [("production", "-A"), ("one-namespace", "--namespace=cache-system")]
)
def test_the_manifests_apply_and_their_permissions_are_enough(tmp_path, clean_plane, kubectl, overlay, scope):
    folder = str(FOLDER / "deploy/overlays" / overlay)
    applied = kubectl("apply", "-k", folder)
    try:
        assert applied.returncode == 0, applied.stderr
        deployment = kubectl("get", "deployment", "cache-operator", "-n", "cache-system", "-o", "yaml").stdout
        assert f"- {scope.replace('-A', '--all-namespaces')}\n" in deployment
        kubeconfig = clean_plane.write_kubeconfig()
        with Cluster("kubeconfig", kubeconfig=kubeconfig, namespace="cache-system") as cluster:
            cluster.wait_for("customresourcedefinitions", "caches.cache.examples.kopf.dev", is_established)
            token = cluster.call("POST", ACCOUNT, {"spec": {}})["status"]["token"]
            with deployed(tmp_path, kubeconfig, token, scope) as run:
                for effect in changes_of_users(cluster):
                    wait_until(effect)
                assert run.stop() == 0
            assert "orbidden" not in run.log
    finally:
        deleted = kubectl("delete", "-k", folder, "--ignore-not-found", "--timeout=60s")
    assert deleted.returncode == 0, deleted.stderr


def is_established(crd):
    """Whether the API server serves the resource of the CRD."""
    found = (crd or {}).get("status", {}).get("conditions", [])
    return any(it["type"] == "Established" and it["status"] == "True" for it in found)
