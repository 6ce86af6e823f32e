"""Discovery of the testing kit: the requests for the resources that a test looks for."""

import pytest
from kopf._testing.discovery import Discovery, UnknownKindError

GROUPS = {"apps": ["v1"], "batch": ["v1", "v1beta1"]}
RESOURCES = {
    "/api/v1": ("pods", "Pod"),
    "/apis/apps/v1": ("deployments", "Deployment"),
    "/apis/batch/v1": ("jobs", "Job"),
    "/apis/batch/v1beta1": ("jobs", "Job"),
}


class Server:
    def __init__(self):
        self.paths = []
        self.error = None

    def call(self, method, path):
        assert method == "GET"
        self.paths.append(path)
        if self.error is not None:
            raise self.error
        if path == "/api":
            return {"versions": ["v1"]}
        if path == "/apis":
            groups = [
                {"name": name, "versions": [{"version": version} for version in versions]}
                for name, versions in GROUPS.items()
            ]
            return {"groups": groups}
        name, kind = RESOURCES[path]
        return {"resources": [{"name": name, "kind": kind, "namespaced": True, "verbs": ["list"]}]}


@pytest.fixture
def server():
    return Server()


def test_only_the_groups_before_the_one_of_the_kind_are_requested(server):
    discovery = Discovery(server.call)
    assert discovery.find("pods").kind == "Pod"
    assert server.paths == ["/api", "/api/v1"]
    assert discovery.find({"apiVersion": "apps/v1", "kind": "Deployment"}).plural == "deployments"
    assert discovery.find("pod").kind == "Pod"
    assert server.paths == ["/api", "/api/v1", "/apis", "/apis/apps/v1"]
    assert [item.api_version for item in discovery.all()] == ["v1", "apps/v1", "batch/v1", "batch/v1beta1"]
    assert len(server.paths) == 6


def test_unknown_kinds_are_requested_again(server):
    discovery = Discovery(server.call)
    with pytest.raises(UnknownKindError):
        discovery.find("widgets")
    assert server.paths.count("/apis/batch/v1beta1") == 2


def test_a_failed_request_is_repeated(server):
    discovery = Discovery(server.call)
    assert discovery.find("pods").kind == "Pod"
    server.error = ConnectionError("It is down.")
    with pytest.raises(ConnectionError):
        discovery.find("jobs")
    server.error = None
    assert discovery.find("jobs").api_version == "batch/v1"
    assert [item.kind for item in discovery.all()] == ["Pod", "Deployment", "Job", "Job"]
