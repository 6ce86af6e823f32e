"""Built-in kinds: config maps, secrets, pods, deployments (their status drops unknown fields)."""

from tests.differential.harness.session import Session

CRDS = []
KINDS = ["configmaps", "secrets", "pods", "deployments"]
WATCH = KINDS
IGNORED_FIELDS = ["status", "spec"]
UNORDERED = ["pod_event"]
MERGED = ["pod_event"]


def run(s: Session) -> None:
    s.start()
    s.create("configmaps", "c", body={"data": {"a": "1"}})
    s.create("secrets", "x", body={"stringData": {"password": "p", "user": "u"}})
    s.settle("created")
    s.patch("configmaps", "c", {"data": {"a": "2"}})
    s.patch("secrets", "x", {"stringData": {"password": "q"}})
    s.settle("changed")
    s.create("pods", "p", {"containers": [{"name": "c", "image": "none"}]})
    s.settle("a pod")
    s.delete("pods", "p")
    s.wait_gone("pods", "p")
    s.settle("no pod")
    s.create(
        "deployments",
        "d",
        {
            "replicas": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "none"}]},
            },
        },
    )
    s.settle("a deployment", quiet=1.5)
    s.delete("configmaps", "c")
    s.settle("deleted")
    s.stop()
