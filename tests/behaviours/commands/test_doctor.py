"""`kopf doctor`: whether a cluster is ready for an operator."""

import functools
import json
import time

import pytest
import yaml
from kopf._cli.cluster_features import certificates_end, check_certificates
from kopf.testing import Cluster

from tests.support.accounts import grant, write_kubeconfig
from tests.support.inspected import FINALIZER, WIDGETS, call

pytestmark = pytest.mark.kopf_embedded_only

OPERATOR = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False

@kopf.on.create("widgets")
def publish(**_): ...

@kopf.on.event("pods")
def watch(**_): ...
"""


@pytest.fixture
def cluster(kopf_cluster):
    kopf_cluster.apply(WIDGETS)
    return kopf_cluster


@pytest.fixture
def operator(tmp_path):
    path = tmp_path / "sites.py"
    path.write_text(OPERATOR)
    return path


@pytest.fixture
def run(cluster):
    return functools.partial(call, cluster, "doctor")


def findings(result):
    """The texts by checks and levels."""
    document = json.loads(result.stdout)
    assert document["version"] == 1
    found = {}
    for item in document["checks"]:
        found.setdefault((item["check"], item["level"]), []).append(item["text"])
    return found


def test_a_cluster_that_is_ready(run, operator):
    result = run(str(operator), "-A")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    table = {line.split()[0]: line.split(None, 2)[1:] for line in lines[:-1]}
    assert table["server"][0] == "ok" and "ms" in table["server"][1]
    assert table["clock"] == ["ok", "that of the server is the same as here"]
    assert table["login"][0] == "ok" and table["login"][1].startswith("kubeconfig, context ")
    assert table["kinds"] == ["ok", "2 of 2 selectors are resolved"]
    assert table["access"] == ["ok", "8 permissions"]
    assert table["state"] == ["info", "0 objects"]
    assert table["features"] == ["info", "streamed lists: yes; shard selectors: no"]
    assert lines[-1] == "no problems"


def test_without_files_only_the_cluster_is_checked(run):
    result = run()
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["server", "clock", "login", "no"]


def test_what_is_wrong_in_the_cluster_is_found(cluster, run, tmp_path):
    operator = tmp_path / "sites.py"
    operator.write_text(
        OPERATOR.replace(
            "    settings.posting",
            "    settings.peering.mandatory = True\n"
            "    settings.persistence.finalizer = 'example.com/ours'\n"
            "    settings.persistence.progress_storage = kopf.StatusProgressStorage(field='status.kopf')\n"
            "    settings.posting",
        )
        + "@kopf.on.create('wigdets')\ndef other(**_): ...\n"
        + "@kopf.on.validate('widgets')\ndef admission(**_): ...\n"
    )
    crd = yaml.safe_load(WIDGETS)
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object"}}
    cluster.apply(json.dumps(crd))
    for name, annotations in [("large", {"a": "x" * (201 * 1024)}), ("small", {"a": "x"})]:
        metadata = {"name": name, "annotations": annotations, "finalizers": [FINALIZER]}
        cluster.create({"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": metadata})
    result = run(str(operator), "-n", "absent", "-n", "default", "-o", "json")
    assert result.exit_code == 1, result.output
    found = findings(result)
    [kinds] = found["kinds", "fail"]
    assert kinds.startswith("The cluster has no resource 'wigdets' for other() (sites.py:")
    assert found["schema", "fail"] == [
        "widgets: status is pruned, so the progress of handlers is lost, and they are called again"
    ]
    assert found["peering", "fail"] == [
        "it is mandatory, but the cluster has no kopfpeerings: apply their CRD"
    ]
    assert found["webhooks", "fail"] == [
        "there are admission handlers, but settings.admission.server is None"
    ]
    assert found["namespaces", "warn"] == ["No namespace matches 'absent' yet."]
    assert found["state", "warn"][0] == "widgets: 1 object has more than 200 KiB of annotations"
    assert found["state", "warn"][1].startswith(
        f"widgets: 2 objects have the finalizer {FINALIZER} of another"
    )
    document = json.loads(result.stdout)
    assert (document["failures"], document["warnings"]) == (4, 3)
    text = run(str(operator), "-n", "default").stdout
    assert text.splitlines()[-1] == "4 failures, 2 warnings"
    assert f"kopf release-finalizers -k widgets --finalizer {FINALIZER}" in text


def test_warnings_fail_only_if_strict(run, operator):
    args = (str(operator), "-n", "absent")
    assert run(*args).exit_code == 0
    assert run(*args, "--strict").exit_code == 1


def test_the_printed_roles_are_enough_and_none_is_superfluous(operator, tmp_path):
    """CLI-4"""
    with Cluster("embedded", access=True) as cluster:
        cluster.apply(WIDGETS)
        printed = call(cluster, "doctor", str(operator), "-A", "--as-manifest")
        assert printed.exit_code == 0, printed.output
        [role] = yaml.safe_load_all(printed.stdout)
        assert role["kind"] == "ClusterRole"
        kubeconfig = tmp_path / "config"
        grant(cluster, role["rules"])
        write_kubeconfig(cluster, kubeconfig)
        diagnose = functools.partial(
            call,
            cluster,
            "doctor",
            str(operator),
            "-A",
            "-o",
            "json",
            environment={"KUBECONFIG": str(kubeconfig)},
        )
        found = findings(diagnose())
        assert ("access", "fail") not in found and ("access", "ok") in found, found
        singles = [{**rule, "verbs": [verb]} for rule in role["rules"] for verb in rule["verbs"]]
        assert len(singles) >= 8
        for missing in singles:
            grant(cluster, [rule for rule in singles if rule != missing])
            result = diagnose()
            assert result.exit_code == 1, (missing, result.output)
            [item] = [item for item in json.loads(result.stdout)["checks"] if item["level"] == "fail"]
            [resource] = missing["resources"]
            assert item["check"] == "access"
            assert item["text"].startswith(f"{missing['verbs'][0]} {resource}"), item
            assert yaml.safe_load(item["detail"]) == missing
            source = {"widgets": "publish() (sites.py:", "pods": "watch() (sites.py:"}.get(resource)
            assert source is None or f"needed by {source}" in item["text"], item


def test_the_permissions_for_the_lease_are_in_the_namespace_of_the_operator(
    cluster, operator, tmp_path, monkeypatch
):
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    election = (
        "    settings.leadership.enabled, settings.leadership.name = True, 'ours'\n    settings.posting"
    )
    operator.write_text(OPERATOR.replace("    settings.posting", election))
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = "team"
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    for variables, namespace in (({}, "team"), ({"POD_NAMESPACE": "home"}, "home")):
        environment = {"KUBECONFIG": str(tmp_path / "config"), **variables}
        args = ("doctor", str(operator), "-A", "--as-manifest")
        printed = call(cluster, *args, environment=environment)
        assert printed.exit_code == 0, printed.output
        roles = list(yaml.safe_load_all(printed.stdout))
        rules = {role["metadata"].get("namespace"): role["rules"] for role in roles}
        assert [rule["verbs"] for rule in rules[namespace]] == [["create"], ["get", "update"]]
        assert {name for rule in rules[namespace] for name in rule["resources"]} == {"leases"}


@pytest.mark.parametrize("command", ["doctor", "check"])
def test_options_can_name_the_lease(operator, tmp_path, command):
    with Cluster("embedded", access=True) as cluster:
        cluster.apply(WIDGETS)
        grant(cluster, READING)
        write_kubeconfig(cluster, tmp_path / "config")
        environment = {"KUBECONFIG": str(tmp_path / "config")}
        options = ("--lease=ours", "--lease-namespace=team")
        plain = call(cluster, command, str(operator), "-A", environment=environment)
        elected = call(cluster, command, str(operator), "-A", *options, environment=environment)
        text = "update leases of coordination.k8s.io named 'ours' in the namespace team"
        assert text in " ".join(elected.stdout.split()) and "leases" not in plain.stdout, elected.output


def test_the_roles_can_be_printed_as_json(run, operator):
    args = (str(operator), "-A", "--as-manifest")
    printed, as_json = run(*args), run(*args, "-o", "json")
    assert as_json.exit_code == 0, as_json.output
    document = json.loads(as_json.stdout)
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    assert document["items"] == list(yaml.safe_load_all(printed.stdout))


def test_few_requests_find_the_permissions(cluster, run, operator):
    before = len(cluster.requests)
    assert run(str(operator), "-A").exit_code == 0
    paths = [request.path for request in list(cluster.requests)[before:]]
    assert sum("selfsubjectrulesreviews" in path for path in paths) == 1
    assert not any("selfsubjectaccessreviews" in path for path in paths)
    assert len(paths) <= 50


def test_a_failed_login_is_a_row(cluster, tmp_path, operator):
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "absent"}
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    args = ("doctor", str(operator), "-A")
    result = call(cluster, *args, "-o", "json", environment={"KUBECONFIG": str(path)})
    assert result.exit_code == 1
    [text] = findings(result)["login", "fail"]
    assert "absent" in text
    result = call(cluster, *args, environment={"KUBECONFIG": str(path)})
    assert result.stdout.splitlines()[-1] == "1 failure"


def test_a_server_that_cannot_be_reached_is_a_row(cluster, tmp_path, operator):
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    result = call(cluster, "doctor", str(operator), "-o", "json", environment={"KUBECONFIG": str(path)})
    assert result.exit_code == 1
    [text] = findings(result)["server", "fail"]
    assert "127.0.0.1:1" in text


def test_the_webhooks_of_the_operator_are_checked(cluster, run, tmp_path):
    operator = tmp_path / "sites.py"
    operator.write_text(
        OPERATOR.replace(
            "    settings.posting",
            "    settings.admission.server = kopf.WebhookServer()\n"
            "    settings.admission.managed = 'ours.example.com'\n"
            "    settings.posting",
        )
        + "@kopf.on.validate('widgets')\ndef admission(**_): ...\n"
    )
    service = {"name": "ours", "namespace": "default", "port": 443}
    webhook = {
        "name": "admission.ours.example.com",
        "clientConfig": {"service": service},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "ours.example.com"},
        "webhooks": [webhook],
    }
    cluster.create(configuration)

    def found():
        return findings(run(str(operator), "-A", "-o", "json"))

    [text] = found()["webhooks", "fail"]
    assert text.startswith("admission.ours.example.com: the Service default/ours does not exist")
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ours", "namespace": "default"}}
    cluster.create({**body, "spec": {"ports": [{"port": 8443}]}})
    assert found()["webhooks", "fail"] == [
        "admission.ours.example.com: the Service default/ours has no port 443"
    ]
    cluster.patch("services", "ours", {"spec": {"ports": [{"port": 443}]}})
    rows = found()
    assert ("webhooks", "fail") not in rows
    assert rows["webhooks", "ok"] == ["1 webhook in ours.example.com"]


def test_replicas_with_an_own_certificate_for_each_fail(cluster, run, tmp_path):
    operator = tmp_path / "sites.py"

    def found(server, *lines):
        added = [
            f"settings.admission.server = {server}",
            "settings.admission.managed = 'ours.example.com'",
            *lines,
        ]
        text = "".join(f"    {line}\n" for line in added)
        handler = "@kopf.on.validate('widgets')\ndef admission(**_): ...\n"
        operator.write_text(OPERATOR.replace("    settings.posting", f"{text}    settings.posting") + handler)
        return findings(run(str(operator), "-A", "-o", "json"))

    election = ["settings.leadership.enabled = True", "settings.leadership.name = 'ours'"]
    elected = [*election, "settings.leadership.namespace = 'default'"]
    own = "kopf.WebhookServer(host='ours.default.svc')"
    text = (
        "Each replica has its own certificate, and the API server trusts only one of them: pass secret='NAME'"
        " to kopf.WebhookServer."
    )
    assert found(own, *elected)["webhooks", "fail"] == [text]
    for server in (
        "kopf.WebhookServer(host='ours.default.svc', secret='default/ours')",
        "kopf.WebhookServer(host='ours.default.svc', certfile='x', pkeyfile='y')",
        "kopf.WebhookServer(host='127.0.0.1')",
    ):
        assert ("webhooks", "fail") not in found(server, *elected)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ours", "namespace": "default"}}
    cluster.create(secret)
    [problem] = found("kopf.WebhookServer(secret='default/ours')")["webhooks", "fail"]
    assert problem.startswith(
        "The webhook server needs tls.crt, tls.key and ca.crt, but the Secret default/ours"
    )
    # Without leader election, the pods are counted.
    service = {"name": "ours", "namespace": "default"}
    webhook = {
        "name": "admission.ours.example.com",
        "clientConfig": {"service": service},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    cluster.create(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "ours.example.com"},
            "webhooks": [webhook],
        }
    )
    spec = {"selector": {"app": "ours"}, "ports": [{"port": 443}]}
    cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": service, "spec": spec})
    containers = [{"name": "operator", "image": "x"}]
    for name in ("one", "two"):
        assert ("webhooks", "fail") not in found(own)
        metadata = {"name": name, "namespace": "default", "labels": {"app": "ours"}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
        cluster.create(pod)
    assert found(own)["webhooks", "fail"] == [text]


def test_certificates_of_webhooks_expire(cluster):
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    bundle = config["clusters"][0]["cluster"]["certificate-authority-data"]
    end = certificates_end(bundle)
    assert end is not None and end > time.time()
    webhook = {"name": "w", "clientConfig": {"caBundle": bundle}}

    def levels(now):
        return [(finding.level, finding.text) for finding in check_certificates(webhook, now)]

    assert levels(end - 8 * 24 * 3600) == []
    assert levels(end - 3600) == [("warn", "w: the certificate of its authority expires in 1h")]
    assert levels(end + 3600) == [("fail", "w: the certificate of its authority has expired 1h ago")]


READING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]


@pytest.mark.parametrize("access", ["reading", "nothing"])
@pytest.mark.parametrize(
    "args",
    [
        ("status", "-A"),
        ("explain", "widgets/home"),
        ("doctor", "-A"),
        ("release-finalizers", "-A"),
        ("release-finalizers", "-A", "--yes"),
        ("uninstall", "-A"),
        ("uninstall", "-A", "--yes"),
        ("manifests", "-A", "--image=x"),
    ],
)
def test_commands_with_few_permissions_work_or_name_what_is_missing(operator, tmp_path, access, args):
    """CLI-7"""
    with Cluster("embedded", access=True) as cluster:
        cluster.apply(WIDGETS)
        metadata = {"name": "home", "finalizers": [FINALIZER]}
        cluster.create({"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": metadata})
        grant(cluster, READING if access == "reading" else [])
        write_kubeconfig(cluster, tmp_path / "config")
        environment = {"KUBECONFIG": str(tmp_path / "config")}
        command, *options = args
        result = call(cluster, command, *options, str(operator), environment=environment)
        assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit)
        is_explained = any(text in result.output for text in ("forbidden", "patch widgets", "is missing"))
        assert result.exit_code in (0, 1) and (result.exit_code == 0 or is_explained), result.output
        if access == "reading":
            assert result.exit_code == (1 if command == "doctor" or "--yes" in args else 0), result.output
        assert cluster.get("widgets", "home")["metadata"]["finalizers"] == [FINALIZER]
