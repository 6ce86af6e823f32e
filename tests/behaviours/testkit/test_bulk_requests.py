"""Many requests to the embedded server in one step."""

import pytest

pytestmark = pytest.mark.kopf_embedded_only

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def create(name: str) -> tuple[str, str, dict[str, object]]:
    return "POST", CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def test_they_are_made_in_their_order_and_are_not_in_the_request_log(kopf_cluster):
    known, _ = kopf_cluster.requests_since(0)
    kopf_cluster.call_all([create("a"), create("b"), ("PATCH", f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})])
    assert kopf_cluster.get("configmaps", "a")["data"] == {"k": "v"}
    assert kopf_cluster.get("configmaps", "b")["metadata"]["name"] == "b"
    assert kopf_cluster.requests_since(known)[1] == []


def test_a_rejected_request_is_an_error_and_ends_them(kopf_cluster):
    with pytest.raises(RuntimeError, match="already exists"):
        kopf_cluster.call_all([create("a"), create("a"), create("b")])
    assert [item["metadata"]["name"] for item in kopf_cluster.list("configmaps")] == ["a"]
