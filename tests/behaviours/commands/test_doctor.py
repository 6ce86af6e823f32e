"""`kopf doctor`: whether a cluster is ready for an operator."""

import functools
import json

import pytest
import yaml
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
