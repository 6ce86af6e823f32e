"""`kopf release-finalizers` and `kopf uninstall`: only the traces of the operator are removed."""

import datetime
import email.utils
import functools
import json
import re
import threading

import pytest
from kopf._cli import release_finalizers
from kopf.testing import ApiError

from tests.support.inspected import FINALIZER, LAST, OTHER, PEERING, PREFIX, WIDGETS, call

pytestmark = pytest.mark.kopf_embedded_only
READS = {"GET"}


@pytest.fixture
def cluster(kopf_cluster):
    kopf_cluster.apply(WIDGETS)
    return kopf_cluster


@pytest.fixture
def run(cluster):
    return functools.partial(call, cluster)


def widget(name: str, *finalizers: str, **annotations: str) -> dict:
    metadata = {"name": name, "finalizers": list(finalizers), "annotations": annotations}
    return {"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {}}


def finalizers(cluster, name: str) -> list[str] | None:
    body = cluster.find("widgets", name)
    return body["metadata"].get("finalizers", []) if body is not None else None


def make_objects(cluster) -> None:
    cluster.create(widget("home", FINALIZER, OTHER))
    cluster.create(widget("shop", FINALIZER))
    cluster.create(widget("old", FINALIZER))
    cluster.create(widget("kept", OTHER, FINALIZER))
    cluster.create(widget("blog", OTHER))
    cluster.delete("widgets", "old")
    cluster.delete("widgets", "kept")
    cluster.clear_requests()


COMMAND = ("release-finalizers", "-k", "widgets", "-A")


def test_without_confirmation_nothing_is_written(cluster, run):
    """CLI-3"""
    make_objects(cluster)
    result = run(*COMMAND)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"would remove {FINALIZER} from 4 of 5 widgets"
    assert lines[1] == "  default/home"
    assert re.fullmatch(rf"  default/kept  being deleted for \ds: kept by {OTHER}", lines[2])
    assert re.fullmatch(r"  default/old   being deleted for \ds: will disappear", lines[3])
    assert lines[-1] == "Nothing was changed. Use --yes to apply."
    assert run(*COMMAND, "--force", "--purge").exit_code == 0
    assert {request.method for request in cluster.requests} == READS
    assert finalizers(cluster, "shop") == [FINALIZER]


def test_only_the_operators_finalizer_is_removed(cluster, run):
    """CLI-3"""
    make_objects(cluster)
    result = run(*COMMAND, "--yes")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == f"removed {FINALIZER} from 4 of 5 widgets"
    found = {name: finalizers(cluster, name) for name in ("home", "shop", "old", "kept", "blog")}
    assert found == {"home": [OTHER], "shop": [], "old": None, "kept": [OTHER], "blog": [OTHER]}
    patches = [request for request in cluster.requests if request.method == "PATCH"]
    assert len(patches) == 4
    for request in patches:
        assert request.content_type == "application/json-patch+json"
        assert request.json[0]["op"] == "test" and request.json[0]["path"] == "/metadata/resourceVersion"
    cluster.clear_requests()
    assert run(*COMMAND, "--yes").stdout == f"removed {FINALIZER} from 0 of 4 widgets\n"
    assert {request.method for request in cluster.requests} == READS


def test_the_finalizer_of_owners_of_children_is_removed(cluster, run):
    cluster.create(widget("a", "kopf.dev/children", FINALIZER, OTHER))
    cluster.create(widget("b", FINALIZER))
    cluster.create(widget("c", "kopf.dev/children"))
    cluster.delete("widgets", "c")
    result = run(*COMMAND, "--yes")
    assert result.exit_code == 0, result.output
    first, a, b, c = result.stdout.splitlines()
    assert first == f"removed {FINALIZER}, kopf.dev/children from 3 of 3 widgets"
    note = "its children in other namespaces are not deleted"
    assert (a, b) == (f"  default/a  {note}", "  default/b")
    assert re.fullmatch(rf"  default/c  being deleted for \ds: has disappeared; {note}", c)
    assert (finalizers(cluster, "a"), finalizers(cluster, "c")) == ([OTHER], None)


def test_annotations_are_removed_on_request_and_another_finalizer_by_its_name(cluster, run):
    cluster.create(widget("a", FINALIZER, OTHER, **{LAST: "{}", PREFIX + "f": "{}", OTHER: "1"}))
    result = run(*COMMAND, "--finalizer", OTHER, "--yes", "-o", "json")
    [released] = json.loads(result.stdout)["objects"]
    assert (released["finalizers"], released["remaining"]) == ([OTHER], [FINALIZER])
    assert released["result"] == "released" and json.loads(result.stdout)["applied"] is True
    assert cluster.get("widgets", "a")["metadata"]["annotations"].keys() == {LAST, PREFIX + "f", OTHER}
    assert run(*COMMAND, "--purge", "--yes", "-o", "name").stdout == "widgets.behaviours.example.com/a\n"
    assert cluster.get("widgets", "a")["metadata"]["annotations"].keys() == {OTHER}
    assert finalizers(cluster, "a") == []


def test_changes_of_other_clients_are_not_lost(cluster, run):
    """CLI-3: 60 objects, while another client edits their finalizers, labels and specs all the time."""
    names = [f"w{number:02}" for number in range(60)]
    for name in names:
        cluster.create(widget(name, FINALIZER, OTHER))
    stopped = threading.Event()
    written: dict[str, int] = {}

    def edit() -> None:
        count = 0
        while not stopped.is_set():
            count += 1
            name = names[count % len(names)]
            current = cluster.get("widgets", name)
            metadata = current["metadata"]
            others = [item for item in metadata["finalizers"] if not item.startswith("example.com/n")]
            edited = {
                **current,
                "metadata": {**metadata, "finalizers": [*others, f"example.com/n{count}"]},
                "spec": {"count": count},
            }
            path = f"/apis/behaviours.example.com/v1/namespaces/default/widgets/{name}"
            try:
                cluster.call("PUT", path, edited)
            except ApiError as error:
                assert error.code == 409
                continue
            written[name] = count

    editor = threading.Thread(target=edit)
    editor.start()
    try:
        result = run(*COMMAND, "--yes", "-o", "json")
    finally:
        stopped.set()
        editor.join()
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["objects"]) == 60
    assert len(written) > 5
    for name in names:
        body = cluster.get("widgets", name)
        expected = [OTHER, f"example.com/n{written[name]}"] if name in written else [OTHER]
        assert body["metadata"]["finalizers"] == expected, name
        assert body["spec"].get("count") == written.get(name)


def test_an_object_that_others_replace_meanwhile_is_left_alone(cluster, run):
    """The finalizer of a new object of the same name is not the one that was listed."""
    cluster.create(widget("a", FINALIZER))
    uid = cluster.get("widgets", "a")["metadata"]["uid"]
    replaced = threading.Event()

    def replace() -> None:
        path = "/apis/behaviours.example.com/v1/namespaces/default/widgets/a"
        cluster.call("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
        cluster.delete("widgets", "a")
        cluster.create(widget("a", FINALIZER))
        replaced.set()

    from kopf._runtime.client.sync_api import SyncApi

    original = SyncApi.patch

    def patch(self, *args, **kwargs):
        if not replaced.is_set():
            replace()
        return original(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SyncApi, "patch", patch)
        result = run(*COMMAND, "--yes", "-o", "json")
    assert json.loads(result.stdout)["objects"][0]["result"] == "gone"
    assert cluster.get("widgets", "a")["metadata"]["uid"] != uid
    assert finalizers(cluster, "a") == [FINALIZER]


def test_a_live_operator_prevents_it(cluster, run):
    """CLI-3"""
    cluster.apply(PEERING.format(age=cluster.now.isoformat()))
    make_objects(cluster)
    for options in [(), ("--yes",)]:
        result = run(*COMMAND, *options)
        assert result.exit_code == 3
        assert result.stdout.splitlines()[-3:] == [
            "peering default: the-operator is running.",
            "A running operator would add the finalizers again. Stop it, or use --force.",
            "Nothing was changed.",
        ]
    assert {request.method for request in cluster.requests} == READS
    assert run(*COMMAND, "--yes", "--force").exit_code == 0
    assert finalizers(cluster, "shop") == []


def test_a_missing_permission_is_reported_for_each_object(cluster, run):
    cluster.create(widget("a", FINALIZER))
    cluster.inject("code", 403, verb="patch", resource="widgets")
    result = run(*COMMAND, "--yes")
    assert result.exit_code == 1
    assert "  default/a  failed: " in result.stdout


OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.managed = "webhooks.example.com"
    settings.persistence.finalizer = "example.com/mine"

@kopf.on.create("widgets")
@kopf.on.delete("widgets")
def serve(**_):
    raise AssertionError("No handler is called.")

@kopf.on.reconcile("configmaps", deletion=True, finalizer="example.com/reconciled")
def sync(**_):
    raise AssertionError("No handler is called.")
"""
CONFIGURATION = """
apiVersion: admissionregistration.k8s.io/v1
kind: {kind}
metadata: {{name: {name}}}
webhooks: []
"""


def test_an_operator_is_uninstalled(cluster, run, tmp_path):
    """CLI-3"""
    file = tmp_path / "operator_file.py"
    file.write_text(OPERATOR)
    cluster.apply(PEERING.format(age="2026-01-01T00:00:00+00:00"))
    for name in ("webhooks.example.com", "others.example.com"):
        for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
            cluster.apply(CONFIGURATION.format(kind=kind, name=name))
    cluster.create(widget("a", "example.com/mine", FINALIZER))
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "finalizers": ["example.com/reconciled"]},
    }
    cluster.create(config)
    cluster.clear_requests()
    planned = run("uninstall", str(file), "-A")
    assert planned.exit_code == 0, planned.output
    assert {request.method for request in cluster.requests} == READS
    done = run("uninstall", str(file), "-A", "--yes")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "removed validatingwebhookconfigurations/webhooks.example.com",
        "removed mutatingwebhookconfigurations/webhooks.example.com",
        "removed example.com/mine from 1 of 1 widgets",
        "  default/a",
        "removed example.com/mine, example.com/reconciled from 1 of 1 configmaps",
        "  default/c",
        "removed a-dead-one, the-operator from the peering default",
    ]
    expected = [line.replace("removed", "would remove", 1) for line in done.stdout.splitlines()]
    assert planned.stdout.splitlines() == [*expected, "Nothing was changed. Use --yes to apply."]
    assert finalizers(cluster, "a") == [FINALIZER]
    assert not cluster.get("configmaps", "c")["metadata"].get("finalizers")
    assert not cluster.get("clusterkopfpeerings", "default").get("status")
    left = [item["metadata"]["name"] for item in cluster.list("validatingwebhookconfigurations")]
    assert left == ["others.example.com"]
    writes = [request.path for request in cluster.requests if request.method not in READS]
    assert "webhookconfigurations" in writes[0] and "webhookconfigurations" in writes[1]
    assert "kopfpeerings" in writes[-1]


def test_records_that_cannot_be_removed_are_reported(cluster, run, tmp_path):
    file = tmp_path / "operator_file.py"
    file.write_text(LEADING)
    cluster.apply(PEERING.format(age="2026-01-01T00:00:00+00:00"))
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    cluster.create({**lease, "metadata": {"name": "shared", "namespace": "default"}})
    cluster.inject("code", 403, verb="patch", resource="clusterkopfpeerings")
    cluster.inject("code", 403, verb="delete", resource="leases")
    result = run("uninstall", str(file), "-A", "--yes")
    assert result.exit_code == 1, result.output
    peers, lease = result.stdout.splitlines()[-2:]
    assert peers.startswith("cannot remove a-dead-one, the-operator from the peering default: cannot patch ")
    assert lease.startswith("cannot remove the lease default/shared: cannot delete ")
    assert cluster.find("leases", "shared") and cluster.get("clusterkopfpeerings", "default")["status"]


def test_an_interrupted_removal_leaves_the_records_of_operators(cluster, tmp_path):
    file = tmp_path / "operator_file.py"
    file.write_text(OPERATOR)
    cluster.apply(PEERING.format(age="2026-01-01T00:00:00+00:00"))
    for name in ("a", "b"):
        cluster.create(widget(name, "example.com/mine"))
    release = release_finalizers._release

    def interrupted_release(session, *args, **kwargs):
        session.interrupted.set()
        return release(session, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(release_finalizers, "_release", interrupted_release)
        result = call(cluster, "uninstall", str(file), "-A", "--yes")
    assert "removed example.com/mine from 1 of 2 widgets" in result.stdout
    assert "peering" not in result.stdout
    assert cluster.get("clusterkopfpeerings", "default")["status"].keys() == {"the-operator", "a-dead-one"}


def test_an_operator_with_webhooks_only_is_uninstalled(cluster, run, tmp_path):
    file = tmp_path / "operator_file.py"
    file.write_text(
        "import kopf\n@kopf.on.startup()\ndef configure(settings, **_):\n"
        "    settings.admission.managed = 'webhooks.example.com'\n"
        "@kopf.on.validate('widgets')\ndef check(**_): ...\n"
    )
    cluster.apply(CONFIGURATION.format(kind="ValidatingWebhookConfiguration", name="webhooks.example.com"))
    assert "leave no state on objects" in run("release-finalizers", str(file), "-A", "--yes").output
    result = run("uninstall", str(file), "-A", "--yes")
    assert result.exit_code == 0, result.output
    assert cluster.list("validatingwebhookconfigurations") == []


def test_finalizers_of_an_ambiguous_kind_stay(cluster, run, tmp_path):
    cluster.apply(WIDGETS.replace("behaviours.example.com", "other.example.com"))
    theirs = {**widget("theirs", FINALIZER), "apiVersion": "other.example.com/v1"}
    cluster.create(theirs)
    file = tmp_path / "operator_file.py"
    file.write_text("import kopf\n@kopf.on.delete('widgets')\ndef delete(**_): ...\n")
    for command in ("release-finalizers", "uninstall"):
        result = run(command, str(file), "-A", "--yes")
        assert result.exit_code == 2 and "is ambiguous: widgets.v1.behaviours.example.com," in result.output
    body = cluster.get("widgets.other.example.com", "theirs")
    assert body["metadata"]["finalizers"] == [FINALIZER]


def test_kinds_that_cannot_be_watched_are_left_out(run, tmp_path):
    file = tmp_path / "operator_file.py"
    file.write_text(
        "import kopf\n@kopf.on.create(lambda resource: resource.plural in ('bindings', 'widgets'))\n"
        "def create(**_): ...\n"
    )
    result = run("status", str(file), "-A")
    assert result.exit_code == 0, result.output
    result = run("manifests", str(file), "-A")
    assert "  - widgets\n" in result.stdout and "  - bindings\n" not in result.stdout, result.output


def test_unreadable_peerings_are_reported(cluster, run):
    cluster.apply(PEERING.format(age="2026-01-01T00:00:00+00:00"))
    cluster.inject("code", 403, verb="list", resource="clusterkopfpeerings")
    result = run(*COMMAND)
    assert result.exit_code == 0
    assert "clusterkopfpeerings cannot be read, so running operators are not noticed" in result.stderr


def test_usage_errors(run):
    for args in [("release-finalizers",), ("uninstall",), ("release-finalizers", "-k", "x", "-A", "-n", "y")]:
        assert run(*args).exit_code == 2, args


def test_the_environment_confirms_nothing(cluster):
    cluster.create(widget("a", FINALIZER))
    cluster.clear_requests()
    names = ("APPLY", "YES", "FORCE")
    environment = {f"KOPF_RELEASE_FINALIZERS_{name}": "1" for name in names}
    assert call(cluster, *COMMAND, environment=environment).exit_code == 0
    assert {request.method for request in cluster.requests} == READS


def test_a_live_operator_is_not_uninstalled(cluster, run, tmp_path):
    file = tmp_path / "operator_file.py"
    file.write_text(OPERATOR)
    cluster.apply(PEERING.format(age=cluster.now.isoformat()))
    cluster.create(widget("a", "example.com/mine"))
    cluster.clear_requests()
    result = run("uninstall", str(file), "-A", "--yes")
    assert result.exit_code == 3
    assert "would remove a-dead-one from the peering default" in result.stdout.splitlines()
    assert "Nothing was changed." in result.stdout.splitlines()
    assert {request.method for request in cluster.requests} == READS
    forced = run("uninstall", str(file), "-A", "--yes", "--force")
    assert forced.exit_code == 0, forced.output
    assert "removed a-dead-one, the-operator from the peering default" in forced.stdout.splitlines()
    assert finalizers(cluster, "a") == []


LEADING = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.leadership.enabled = True
    settings.leadership.name = "shared"
    settings.leadership.namespace = "default"

@kopf.on.delete("widgets")
def delete(**_): ...
"""


WITH_OPTIONS = "import kopf\n@kopf.on.delete('widgets')\ndef delete(**_): ...\n"


@pytest.mark.parametrize(
    ("text", "options"),
    [(LEADING, ()), (WITH_OPTIONS, ("--lease=shared", "--lease-namespace=default"))],
)
def test_a_live_leader_prevents_the_release_and_a_dead_one_is_removed(cluster, tmp_path, text, options):
    path = tmp_path / "operator_file.py"
    path.write_text(text)
    metadata = {"name": "led", "finalizers": [FINALIZER]}
    cluster.create({"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": metadata})
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {
        "holderIdentity": "pod_1f2e",
        "leaseDurationSeconds": 15,
        "renewTime": now,
        "leaseTransitions": 12,
    }
    metadata = {"name": "shared", "namespace": "default"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    cluster.create({**lease, "spec": {**spec, "renewTime": now}})
    shown = "lease default/shared is held by pod_1f2e, term 12, renewed "
    assert shown in call(cluster, "status", str(path), "-A", *options).stdout
    for command in ("release-finalizers", "uninstall"):
        result = call(cluster, command, str(path), "-A", "--yes", *options)
        assert result.exit_code == 3, result.output
        assert shown in result.stdout and "Nothing was changed." in result.stdout
    assert cluster.get("widgets", "led")["metadata"]["finalizers"] == [FINALIZER]
    cluster.patch("leases", "shared", {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}})
    result = call(cluster, "uninstall", str(path), "-A", "--yes", *options)
    assert result.exit_code == 0, result.output
    assert "removed the lease default/shared" in result.stdout
    assert "finalizers" not in cluster.get("widgets", "led")["metadata"]
    assert cluster.find("leases", "shared") is None


@pytest.mark.parametrize("is_generated", [False, True])
def test_the_secret_of_the_webhook_server_is_removed_if_the_operator_has_generated_it(
    cluster, tmp_path, is_generated
):
    path = tmp_path / "operator_file.py"
    server = "@kopf.on.startup()\ndef configure(settings, **_):\n    settings.admission.server = "
    path.write_text(f"{WITH_OPTIONS}\n{server}kopf.WebhookServer(secret='default/ours')\n")
    annotations = {"kopf.dev/generated-certificate": "hash"} if is_generated else {}
    metadata = {"name": "ours", "namespace": "default", "annotations": annotations}
    cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    result = call(cluster, "uninstall", str(path), "-A")
    assert result.exit_code == 0, result.output
    assert ("would remove the secret default/ours" in result.stdout) is is_generated
    assert cluster.find("secrets", "ours") is not None
    result = call(cluster, "uninstall", str(path), "-A", "--yes")
    assert result.exit_code == 0, result.output
    assert (cluster.find("secrets", "ours") is None) is is_generated


@pytest.mark.parametrize("hours", [-1, 1])
def test_live_operators_are_found_although_the_clock_of_this_machine_is_wrong(cluster, tmp_path, hours):
    from kopf._runtime.client.sync_api import SyncApi

    true_time = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)
    original = SyncApi.request

    def request(self, method, path, **kwargs):
        answer = original(self, method, path, **kwargs)
        if path != "/version":
            return answer
        return answer._replace(headers={"date": email.utils.format_datetime(true_time, usegmt=True)})

    path = tmp_path / "operator_file.py"
    path.write_text(LEADING)
    spec = {"holderIdentity": "pod_1f2e", "leaseDurationSeconds": 15}
    spec["renewTime"] = true_time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    metadata = {"name": "shared", "namespace": "default"}
    cluster.create(
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    )
    cluster.apply(PEERING.format(age=true_time.isoformat()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SyncApi, "request", request)
        for command in ("release-finalizers", "uninstall"):
            result = call(cluster, command, str(path), "-A", "--yes")
            assert result.exit_code == 3, result.output
            assert "lease default/shared is held by pod_1f2e, renewed " in result.stdout
            assert "the-operator is running." in result.stdout and "a-dead-one is" not in result.stdout


def test_a_live_operator_of_the_named_peering_prevents_it(cluster, run):
    now = datetime.datetime.now(datetime.UTC).isoformat()
    cluster.apply(PEERING.format(age=now).replace("metadata: {name: default}", "metadata: {name: other}"))
    assert run(*COMMAND).exit_code == 0
    result = run(*COMMAND, "--peering=other")
    assert result.exit_code == 3 and "peering other: the-operator is running." in result.stdout
