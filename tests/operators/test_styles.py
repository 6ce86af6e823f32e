"""Operators in three styles work and stop on request, under both frameworks."""

import pathlib

import pytest

pytestmark = pytest.mark.contract("api 2.9", "api 3.8", "api 6.2", "api 7.4")

HERE = pathlib.Path(__file__).parent


def settled(body):
    """Whether no handler of the object is under way."""
    annotations = body["metadata"].get("annotations", {})
    mine = [
        key for key in annotations if key.split("/")[0] in ("kopf.zalando.org", "operators.testing.kopf.dev")
    ]
    return (
        all(key.endswith(("/last-handled-configuration", "/last", "/kopf-managed")) for key in mine) and mine
    )


def test_threads_and_the_official_client(start, kinds, desk, namespace):
    sites, deployments = desk(kinds.define("sites", "Site")), desk(kinds.deployments)
    run = start("-n", namespace, "--verbose", str(HERE / "threads.py"))
    run.wait_for_log(r"The shop is open\.")
    sites.create("Site", "shop", spec={"secret": "key", "replicas": 2})
    run.wait_for_log(r"The secret key is not there yet\.")
    desk(kinds.secrets).create("Secret", "key")

    site = sites.wait("shop", lambda body: body.get("status", {}).get("create"))
    assert site["status"]["create"]["retries"] > 0
    assert site["metadata"]["finalizers"] == ["operators.testing.kopf.dev/site"]
    deployment = deployments.wait("shop")
    assert deployment["spec"]["replicas"] == 2
    assert deployment["metadata"]["labels"] == {"managed-by": "site-operator"}
    assert deployment["spec"]["template"]["metadata"]["labels"]["managed-by"] == "site-operator"
    [owner] = deployment["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Site", site["metadata"]["uid"], True)
    assert desk(kinds.services).wait("shop")["metadata"]["ownerReferences"] == [owner]
    sites.wait("shop", lambda body: body["status"].get("guarded") is True)

    sites.patch("shop", {"spec": {"replicas": 3}})
    site = sites.wait("shop", lambda body: body["status"].get("scaled"))
    assert (site["status"]["scaled"], site["status"]["diff"]) == ("2 -> 3", [[]])
    deployments.wait("shop", lambda body: body["spec"]["replicas"] == 3)

    image = {"containers": [{"name": "web", "image": "broken"}]}
    deployments.patch("shop", {"spec": {"template": {"spec": image}}})
    deployments.wait(
        "shop", lambda body: body["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx"
    )

    events = desk(kinds.events)
    posted = events.cluster.request("GET", kinds.events.path(namespace))["items"]
    published = [event for event in posted if event["reason"] == "Published"]
    assert [event["message"] for event in published] == ["shop is published."]
    assert {event["type"] for event in posted if event["reason"] == "Logging"} <= {"Warning", "Error"}

    sites.delete("shop")
    sites.wait_until_gone("shop")
    run.wait_for_log(r"shop is taken down\.")
    assert run.stop() == 0


def test_asyncio_and_its_client(start, kinds, desk, namespace):
    accounts, maps = desk(kinds.define("accounts", "Account")), desk(kinds.config_maps)
    maps.create("ConfigMap", "unlabelled")
    run = start("-n", namespace, "--verbose", str(HERE / "asynchronous.py"))
    spec = {"plan": "gold", "parts": ["one", "two"], "limits": {"cpu": "1"}}
    accounts.create("Account", "alice", spec=spec)
    accounts.create("Account", "ignored", spec={"plan": "none", "ignored": True})
    run.wait_for_log(r"There is no plan 'gold'\.")
    plan = {"name": "gold", "labels": {"plan": "gold"}}
    maps.create("ConfigMap", "gold", metadata=plan, data={"size": "5"})

    for name in ["alice-one", "alice-two"]:
        made = maps.wait(name)
        assert made["data"] == {"size": "5"}
        assert made["metadata"]["ownerReferences"][0]["name"] == "alice"
    account = accounts.wait("alice", lambda body: body.get("status", {}).get("create") and settled(body))
    assert account["status"]["create"] == {"parts": 2}
    assert account["status"]["create/one"] == "one"
    assert account["metadata"]["labels"] == {"plan": "gold"}
    assert account["metadata"]["annotations"]["operators.testing.kopf.dev/kopf-managed"] == "yes"
    accounts.wait("alice", lambda body: body["status"].get("followed") == "gold")

    accounts.patch("alice", {"spec": {"limits": {"cpu": "2"}}})
    changed = accounts.wait("alice", lambda body: body["status"].get("relimit/spec.limits.cpu"))
    assert changed["status"]["relimit/spec.limits.cpu"] == {"from": "1", "to": "2"}
    accounts.wait("alice", lambda body: body["status"].get("beats") == 3)
    assert "create" not in accounts.wait("ignored").get("status", {})

    accounts.delete("alice")
    accounts.wait_until_gone("alice")
    run.wait_for_log(r"alice leaves\.")
    assert run.stop() == 0
    assert "The session is closed." in run.log
    accounts.patch("ignored", {"metadata": {"finalizers": None}})


def test_classes_and_pykube_in_a_thread(start, kinds, desk):
    backups, maps = desk(kinds.define("backups", "Backup")), desk(kinds.config_maps)
    run = start(script=str(HERE / "classes.py"))
    run.wait_for_log(r"READY")
    backups.create("Backup", "daily", spec={"what": "everything"})
    backup = backups.wait("daily", lambda body: body.get("status", {}).get("BackupController.on_create"))
    assert backup["status"] == {"BackupController.on_create": {"kind": "Backup"}, "same": True}
    found = maps.cluster.request("GET", kinds.config_maps.path(maps.namespace))["items"]
    [made] = [item for item in found if item["metadata"]["name"].startswith("daily-")]
    assert made["data"] == {"what": "everything"}

    run.wait_for_log(r"\[.*/daily\] Creation is processed: 1 succeeded; 0 failed\.")
    backups.patch("daily", {"spec": {"what": "half"}})
    backup = backups.wait("daily", lambda body: body["metadata"]["annotations"].get("stamped"))
    assert backup["status"]["changes"] == ["change spec.what: everything => half"]

    backups.delete("daily")
    backups.wait_until_gone("daily")
    assert run.stop() == 0
    assert run.lines[-1] == "BYE" or "BYE" in run.log
    assert "The default registry is used" not in run.log
