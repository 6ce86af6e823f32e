"""The activity log of a cluster: each change with its client."""

import json

import pytest
from kopf._cli.activity_log import ActivityLog, describe
from kopf.testing import Request

MERGE = "application/merge-patch+json"
WIDGETS = "/apis/example.com/v1/namespaces/ns/widgets"


def request(method, path, body=None, code=200, content=MERGE, agent="kubectl/v1.34.0 (linux)"):
    text = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request(
        at=0.0,
        method=method,
        path=path,
        query="",
        content_type=content,
        agent=agent,
        body=text,
        code=code,
        user="admin",
        accept="application/json",
    )


@pytest.mark.parametrize(
    "asked, logged",
    [
        (request("POST", WIDGETS, {"metadata": {"name": "one"}}), "kubectl created widgets/one in ns"),
        (request("POST", WIDGETS, {"metadata": {"generateName": "w-"}}), "kubectl created widgets/w-… in ns"),
        (
            request("POST", WIDGETS, {"metadata": "text"}, code=400),
            "kubectl could not have widgets/… in ns created: 400",
        ),
        (request("POST", "/api/v1/nodes", b"kind: Node"), "kubectl created nodes/… "),
        (request("DELETE", WIDGETS + "/one"), "kubectl deleted widgets/one in ns"),
        (request("PUT", "/api/v1/namespaces/ns"), "kubectl replaced namespaces/ns"),
        (request("DELETE", WIDGETS + "/one", agent=""), "a client deleted widgets/one in ns"),
        (
            request("DELETE", WIDGETS + "/one", code=404),
            "kubectl could not have widgets/one in ns deleted: 404",
        ),
        (
            request(
                "PATCH",
                WIDGETS + "/one",
                {"metadata": {"name": "one", "uid": "u", "labels": {"a": "b"}}, "spec": {"x": 1}},
            ),
            "kubectl changed widgets/one in ns: metadata.labels.a, spec.x",
        ),
        (
            request("PATCH", WIDGETS + "/one", {"metadata": {"annotations": {"kopf.zalando.org/fn": None}}}),
            "kubectl changed widgets/one in ns: Kopf's annotations",
        ),
        (
            request(
                "PATCH",
                WIDGETS + "/one/status",
                [{"path": "/status/x"}],
                content="application/json-patch+json",
            ),
            "kubectl changed widgets/one/status in ns: status.x",
        ),
        (
            request(
                "PATCH",
                WIDGETS + "/one",
                [
                    {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
                    {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"},
                    {"op": "add", "path": "/metadata/annotations/kopf.zalando.org~1fn", "value": "x"},
                ],
                content="application/json-patch+json",
            ),
            "kubectl changed widgets/one in ns: Kopf's annotations",
        ),
        (request("PATCH", WIDGETS + "/one", b"a: b"), "kubectl changed widgets/one in ns"),
    ],
)
def test_changes_are_logged(asked, logged):
    line = describe(asked)
    assert line is not None
    assert line.text == logged.rstrip()


def test_fields_that_the_schema_drops_are_not_reported_as_changed():
    patch = request("PATCH", WIDGETS + "/one/status", {"status": {"a": 1, "b": None}, "spec": {"x": 1}})
    asked = []

    def find(path):
        asked.append(path)
        return {"spec": {"x": 1}}

    assert describe(patch, find).text == (
        "kubectl changed widgets/one/status in ns: status.b, spec.x"
        " (not stored, as the schema has no such fields: status.a)"
    )
    assert asked == [WIDGETS + "/one"]
    assert describe(patch, lambda _: None).text.endswith(": status.a, status.b, spec.x"), (
        "it is gone meanwhile"
    )


def test_fields_of_operations_that_the_schema_drops_are_not_reported_as_changed():
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "add", "path": "/status/a", "value": 1},
        {"op": "add", "path": "/status/b", "value": 1},
        {"op": "add", "path": "/status/c", "value": None},
        {"op": "remove", "path": "/status/c"},
        {"op": "add", "path": "/status/list/0", "value": 1},
    ]
    patch = request("PATCH", WIDGETS + "/one/status", operations, content="application/json-patch+json")
    assert describe(patch, lambda _: {"status": {"b": 1, "list": [1]}}).text == (
        "kubectl changed widgets/one/status in ns: status.b, status.c, status.list.0"
        " (not stored, as the schema has no such fields: status.a)"
    )


def test_what_is_wrong_is_red():
    assert describe(request("DELETE", WIDGETS + "/one", code=409)).colour == "red"
    assert describe(request("DELETE", WIDGETS + "/one", code=0)).colour == "red"
    assert describe(request("DELETE", WIDGETS + "/one")).colour != "red"


@pytest.mark.parametrize("path", ["/api/v1/namespaces/ns/events", "/version", "/apis"])
def test_the_rest_is_not_worth_it(path):
    assert describe(request("POST", path, {"metadata": {"name": "one"}})) is None
    assert describe(request("GET", WIDGETS)) is None


class RequestedCluster:
    """A cluster with a request since the start of the log."""

    def requests_since(self, count):
        return 1, [request("DELETE", WIDGETS + "/one")] * count

    async def wait_until(self, predicate, timeout):
        self.requests_since = lambda count: (1, [request("DELETE", WIDGETS + "/one")])
        predicate()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_log_ends_when_its_reader_is_gone():
    reported = []

    def report(entry):
        reported.append(entry)
        raise BrokenPipeError

    with ActivityLog(RequestedCluster(), report) as log:
        log._thread.join(60)
    assert len(reported) == 1
