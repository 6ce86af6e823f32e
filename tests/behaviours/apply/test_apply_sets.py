"""Section 6.5: ApplySets and pruning. Scenarios 5, 6, 9."""

import kopf
import pytest

from .conftest import AGENT, PART_OF

ID = "applyset.kubernetes.io/id"
GROUP_KINDS = "applyset.kubernetes.io/contains-group-kinds"
NAMESPACES = "applyset.kubernetes.io/additional-namespaces"
TOOLING = "applyset.kubernetes.io/tooling"
KEEP = "kit.kopf.zalando.org/keep"
CHILDREN = "kopf.dev/children"


def marks(cluster, name="one"):
    metadata = cluster.get("widgets", name)["metadata"]
    annotations = metadata.get("annotations", {})
    return metadata.get("labels", {}).get(ID), annotations.get(GROUP_KINDS), annotations.get(NAMESPACES)


def names(refs):
    return [(ref.kind, ref.name) for ref in refs]


@pytest.fixture
def sets(config_map, service):
    """An ApplySet of 3, and then of 2 with another kind."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "account"}}
    return [config_map(), service, config_map("two")], [config_map(), account]


def test_6_6_5_members_that_are_not_desired_any_more_are_deleted(apply, cluster, make, sets, config_map):
    before, after = sets
    owner = make()
    apply(config_map("others"), owner=make("other"), prune=True)
    apply(config_map("plain"), owner=make("plain"))
    assert apply(before, owner=owner, prune=True).pruned == []
    id, kinds, namespaces = marks(cluster)
    assert id == cluster.get("configmaps", "one")["metadata"]["labels"][PART_OF]
    assert (kinds, namespaces) == ("ConfigMap,Service", "")
    annotations = cluster.get("widgets", "one")["metadata"]["annotations"]
    assert annotations[TOOLING] == f"kopf/{kopf.__version__}"

    applied = apply(after, owner=owner, prune=True)
    assert names(applied.pruned) == [("Service", "web"), ("ConfigMap", "two")]
    assert names(applied.created) == [("ServiceAccount", "account")]
    assert marks(cluster) == (id, "ConfigMap,ServiceAccount", "")
    assert cluster.api.find("services", "web") is None
    for name in ("one", "others", "plain"):
        assert cluster.get("configmaps", name)


@pytest.mark.kopf_embedded_only
def test_6_6_5_the_marks_are_widened_first_and_narrowed_last(apply, cluster, make, sets):
    before, after = sets
    owner = make()
    apply(before, owner=owner, prune=True)
    cluster.clear_requests()
    apply(after, owner=owner, prune=True)
    widgets = f"apis/behaviours.example.com/v1/namespaces/{cluster.namespace}/widgets"
    core = f"api/v1/namespaces/{cluster.namespace}"
    expected = [
        f"PATCH {widgets}/one",
        f"GET {core}/serviceaccounts/account",
        f"PATCH {core}/serviceaccounts/account",
        f"PATCH {core}/configmaps/one",
        f"GET {core}/configmaps",
        f"GET {core}/services",
        f"GET {core}/serviceaccounts",
        f"DELETE {core}/services/web",
        f"DELETE {core}/configmaps/two",
        f"PATCH {widgets}/one",
    ]
    mine = [it for it in cluster.requests if it.agent == AGENT and f"/{cluster.namespace}/" in it.path]
    assert [f"{it.method} {it.path.lstrip('/')}" for it in mine] == expected
    annotations = [it.json["metadata"]["annotations"][GROUP_KINDS] for it in (mine[0], mine[-1])]
    assert annotations == ["ConfigMap,Service,ServiceAccount", "ConfigMap,ServiceAccount"]

    # The same again needs no requests for the ApplySet.
    cluster.clear_requests()
    apply(after, owner=cluster.get("widgets", "one"), prune=True)
    mine = [it for it in cluster.requests if it.agent == AGENT and f"/{cluster.namespace}/" in it.path]
    assert sorted(it.method for it in mine) == ["PATCH", "PATCH"]
    assert not any("widgets" in it.path for it in mine)


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize("is_done", [0, 1])
def test_6_6_6_a_crash_at_any_request_loses_nothing(
    apply, cluster, make, sets, config_map, other_namespace, is_done
):
    before, after = sets
    before = [*before, config_map("far", other_namespace)]
    apply(config_map("others"), owner=make("other"), prune=True)
    crashes = 0
    for number in range(100):
        name = f"w{number}"
        owner = make(name)
        desired = [_renamed(child, number) for child in before], [_renamed(child, number) for child in after]
        # The first set is complete, or interrupted as well.
        crashed = [_crashed(apply, cluster, children, name, number, is_done) for children in desired]
        apply.restart()
        apply(desired[1], owner=cluster.get("widgets", name), prune=True)
        uid = owner["metadata"]["uid"]
        found = [
            (body["kind"], body.metadata.name)
            for kind in ("configmaps", "services", "serviceaccounts")
            for body in cluster.api.list(kind, "*")
            if uid in (_owner_uids(body))
        ]
        assert sorted(found) == sorted((child["kind"], child["metadata"]["name"]) for child in desired[1])
        assert marks(cluster, name)[1:] == ("ConfigMap,ServiceAccount", "")
        assert cluster.get("configmaps", "others")
        crashes += sum(crashed)
        if not any(crashed):
            break
    assert crashes >= 20, "each request was interrupted"


def _owner_uids(body):
    uids = [ref["uid"] for ref in body.metadata.get("ownerReferences") or ()]
    return [*uids, body.metadata.annotations.get("kit.kopf.zalando.org/owner")]


def _renamed(child, number):
    metadata = {**child["metadata"], "name": f"{child['metadata']['name']}{number}"}
    return {**child, "metadata": metadata}


def _crashed(apply, cluster, children, name, number, is_done):
    """Apply, and crash at the request of this number. Returns whether there was such a request."""
    apply.restart()
    owner = cluster.get("widgets", name)
    # Discovery is not interrupted: it writes nothing.
    for child in children:
        apply.api.discover(f"{child['apiVersion']}/{child['kind']}")
    apply.api.discover("behaviours.example.com/v1/Widget")
    for kind in ("ConfigMap", "Service", "ServiceAccount"):
        apply.api.discover(kind)
    api = apply.api.using(retries=False, timeout=5)
    cluster.inject("cut-off", is_done, after=number, times=1)
    try:
        apply(children, owner=owner, prune=True, api=api)
    except (kopf.ApplyFailed, kopf.ApiError):
        return True
    else:
        return cluster.is_disconnected
    finally:
        cluster.clear_faults()


def test_6_5_objects_without_the_label_or_the_link_are_not_pruned(apply, cluster, make, config_map):
    owner = make()
    apply([config_map("one"), config_map("two"), config_map("three")], owner=owner, prune=True)
    cluster.api.patch("configmaps", "one", {"metadata": {"ownerReferences": None}})
    cluster.api.patch("configmaps", "two", {"metadata": {"labels": {PART_OF: None}}})
    apply.restart()
    applied = apply([], owner=owner, prune=True)
    assert names(applied.pruned) == [("ConfigMap", "three")]
    assert cluster.get("configmaps", "one")
    assert cluster.get("configmaps", "two")
    assert marks(cluster)[1] == ""


def test_6_5_kept_members_leave_the_apply_set(apply, cluster, make, config_map):
    owner = make()
    kept = config_map()
    kept["metadata"]["annotations"] = {KEEP: "true"}
    apply([kept, config_map("two")], owner=owner, prune=True)
    applied = apply([], owner=owner, prune=True)
    assert names(applied.pruned) == [("ConfigMap", "two")]
    assert PART_OF not in cluster.get("configmaps", "one")["metadata"].get("labels", {})
    assert marks(cluster)[1] == ""


def test_6_5_the_marks_cover_members_that_are_still_being_deleted(apply, cluster, make, config_map, service):
    owner = make()
    stuck = config_map()
    stuck["metadata"]["finalizers"] = ["example.com/stuck"]
    apply([stuck, service], owner=owner, prune=True)
    assert names(apply(service, owner=owner, prune=True).pruned) == [("ConfigMap", "one")]
    assert marks(cluster)[1] == "ConfigMap,Service"
    assert apply(service, owner=owner, prune=True).pruned == []
    cluster.api.patch("configmaps", "one", {"metadata": {"finalizers": None}})
    apply(service, owner=owner, prune=True)
    assert marks(cluster)[1] == "Service"


def test_6_5_nothing_is_pruned_after_a_failure(apply, cluster, make, config_map):
    owner = make()
    apply(config_map(), owner=owner, prune=True)
    with pytest.raises(kopf.ApplyFailed):
        apply(config_map("INVALID"), owner=owner, prune=True)
    assert cluster.get("configmaps", "one")
    assert apply(config_map("two"), owner=owner, prune=True).pruned


def test_6_5_children_of_a_failed_call_are_pruned_later(apply, make, config_map):
    owner = make()
    apply(config_map(), owner=owner, prune=True)
    with pytest.raises(kopf.ApplyFailed):
        apply([config_map(), config_map("two"), config_map("INVALID")], owner=owner, prune=True)
    assert names(apply(config_map(), owner=owner, prune=True).pruned) == [("ConfigMap", "two")]


def test_6_5_members_of_a_kind_that_is_not_served_any_more_are_gone(
    apply, cluster, make, config_map, thing_crd
):
    crd, thing = thing_crd
    cluster.create(crd)
    owner = make()
    # The kind is resolved under several names.
    apply([thing, config_map()], owner=owner, prune=True)
    apply([thing, config_map(), config_map("two")], owner=owner, prune=True)
    apply([thing, config_map()], owner=owner, prune=True)
    crd_name = crd["metadata"]["name"]
    cluster.api.delete("crd", crd_name)
    cluster.api.wait_for("crd", crd_name, kopf.client.gone, timeout=60)
    for _ in range(2):
        apply(config_map(), owner=cluster.get("widgets", "one"), prune=True)
        assert marks(cluster)[1] == "ConfigMap"


def test_6_5_an_owner_of_another_tool_is_rejected(apply, cluster, make, config_map):
    owner = make(annotations={TOOLING: "kubectl/v1.34"})
    with pytest.raises(kopf.OwnedByAnother, match="kubectl"):
        apply(config_map(), owner=owner, prune=True)
    assert cluster.api.find("configmaps", "one") is None


def test_6_2_an_owner_that_is_gone_is_a_lookup_error(apply, cluster, make, config_map):
    owner = make()
    cluster.api.delete("widgets", "one")
    with pytest.raises(LookupError, match="does not exist any more"):
        apply(config_map(), owner=owner, prune=True)
    make()
    with pytest.raises(LookupError, match="does not exist any more"):
        apply(config_map(), owner=owner, prune=True)
    assert cluster.api.find("configmaps", "one") is None


def test_6_2_the_owner_gets_the_finalizer_before_marked_children(
    apply, cluster, make, config_map, other_namespace
):
    owner = make(finalizers=["example.com/first"])
    # The given state is outdated.
    cluster.api.patch("widgets", "one", {"metadata": {"annotations": {"x": "1"}}})
    applied = apply(config_map("far", other_namespace), owner=owner, prune=True)
    body = applied.objects["ConfigMap", f"{other_namespace}/far"]
    assert body.metadata.annotations["kit.kopf.zalando.org/owner"] == owner["metadata"]["uid"]
    assert "ownerReferences" not in body.metadata
    assert cluster.get("widgets", "one")["metadata"]["finalizers"] == ["example.com/first", CHILDREN]
    assert marks(cluster)[1:] == ("ConfigMap", other_namespace)
    apply.restart()
    assert names(apply([], owner=owner, prune=True).pruned) == [("ConfigMap", "far")]
    assert marks(cluster)[1:] == ("", "")
    cluster.api.patch("widgets", "one", {"metadata": {"finalizers": None}})
