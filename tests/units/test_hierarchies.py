"""Owners, names, namespaces, and labels of children."""

import kopf
import pytest
from kopf._intents.causes import ChangingCause
from kopf._runtime import context as ctx

OWNER = kopf.Body(
    {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "own", "uid": "u", "namespace": "ns", "labels": {"a": "b"}},
    }
)


@pytest.mark.contract("api 11.3")
def test_adoption_is_ownership_names_namespace_and_labels():
    child = {}
    kopf.adopt(child, OWNER)
    assert list(child["metadata"]) == ["ownerReferences", "generateName", "namespace", "labels"]
    assert child["metadata"]["generateName"] == "own-"
    kopf.remove_owner_reference(child, OWNER)
    assert child["metadata"]["ownerReferences"] == []


@pytest.mark.contract("api 11.2")
def test_owner_is_the_object_being_handled():
    with pytest.raises(LookupError, match="Owner must be set explicitly"):
        kopf.adopt({})
    cause = ChangingCause(
        logger=None,
        indices={},
        memo=None,
        resource=kopf.Resource("", "v1", "x"),
        patch=kopf.Patch(),
        body=OWNER,
        initial=False,
        reason=kopf.Reason.CREATE,
    )
    with ctx.context([(ctx.cause_var, cause)]):
        children = [{}, {}]
        kopf.adopt(child for child in children)
    assert [child["metadata"]["namespace"] for child in children] == ["ns", "ns"]
