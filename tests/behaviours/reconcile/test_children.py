"""The argument `children`, and the watches of related kinds. Sections 1.5, 1.7, 2.3."""

import functools
import threading
import urllib.parse

import kopf
import pytest

MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


def owner_of(body):
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": body["metadata"]["name"],
        "uid": body["metadata"]["uid"],
    }


def child(name, *owners, controller=False, **meta):
    references = [owner_of(owner) | ({"controller": True} if controller else {}) for owner in owners]
    return {**MAP, "metadata": {"name": name, "ownerReferences": references, **meta}, "data": {"of": name}}


class Seen:
    """Values from the calls of a reconciler, the newest one last."""

    def __init__(self):
        self._values, self._changed = [], threading.Condition()

    def add(self, value):
        with self._changed:
            self._values.append(value)
            self._changed.notify_all()

    def until(self, value):
        with self._changed:
            found = self._changed.wait_for(lambda: self._values and self._values[-1] == value, 20)
            assert found, f"{value} is not the last of {self._values}"


def test_1_5_children_are_the_owned_objects(cluster, make, kopf_operator):
    seen = Seen()

    def handlers():
        @kopf.on.reconcile("widgets", owns=["configmaps", ("v1", "secrets")])
        async def sync(name, children, **_):
            assert isinstance(children, kopf.Children)
            assert list(children) == ["configmaps", ("v1", "secrets")]
            maps = [(one.metadata["name"], one["data"]["of"]) for one in children["configmaps"]]
            other = children.get("configmaps", "other") is None and children.get("configmaps", "none") is None
            secrets = [one.metadata["name"] for one in children.of(("v1", "secrets"))]
            count = len(children.all())
            with pytest.raises(KeyError, match="'pods' is not in owns="):
                children.of("pods")
            if name == "one":
                seen.add((maps, secrets, count, other))

    one, two = make("one"), make("two")
    cluster.create(child("a", one))
    cluster.create(child("other", two))
    kopf_operator(handlers)
    cluster.create({**child("b", one)})
    seen.until(([("a", "a"), ("b", "b")], [], 2, True))
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "ownerReferences": [owner_of(one)]},
    }
    cluster.create(secret)
    seen.until(([("a", "a"), ("b", "b")], ["s"], 3, True))
    cluster.patch("configmaps", "a", {"metadata": {"ownerReferences": None}})
    seen.until(([("b", "b")], ["s"], 2, True))
    cluster.delete("configmaps", "b")
    seen.until(([], ["s"], 1, True))


def test_1_5_a_kind_can_be_declared_with_several_labels(cluster, make, kopf_operator):
    seen = Seen()

    def handlers():
        declared = [{"role": "a"}, {"role": "b"}, {"size": "1"}]

        @kopf.on.reconcile("widgets", owns=[kopf.owned("configmaps", labels=labels) for labels in declared])
        async def sync(children, **_):
            names = [one.metadata.name for one in children["configmaps"]]
            second = children.get("configmaps", "y")
            seen.add((names, [one.metadata.name for one in children.all()], second and second.metadata.name))

    owner = make("one")
    cluster.create(child("z", owner, labels={"role": "a", "size": "1"}))
    cluster.create(child("y", owner, labels={"role": "b"}))
    cluster.create(child("x", owner, labels={"role": "c"}))
    kopf_operator(handlers)
    seen.until((["y", "z"], ["y", "z"], "y"))


def test_1_5_own_writes_are_among_the_children_at_once(make, kopf_operator):
    seen = Seen()

    def handlers():
        @kopf.on.reconcile("widgets", owns=["configmaps"])
        async def sync(name, children, **_):
            before = len(children.all())
            await kopf.apply({**MAP, "metadata": {"name": name}, "data": {"x": "1"}})
            seen.add((before, [one["data"] for one in children["configmaps"]]))

    kopf_operator(handlers)
    make("one")
    seen.until((1, [{"x": "1"}]))


def test_1_5_only_references_of_controllers_count_on_request(cluster, make, kopf_operator):
    seen = Seen()

    def handlers():
        @kopf.on.reconcile("widgets", owns=[kopf.owned("configmaps", controller=True)])
        def sync(children, **_):
            seen.add([one.metadata["name"] for one in children.all()])

    one = make("one")
    kopf_operator(handlers)
    cluster.create(child("a", one))
    cluster.create(child("b", one, controller=True))
    seen.until(["b"])


def test_1_5_children_are_passed_through_decorators(make, kopf_operator):
    seen = Seen()

    def traced(fn):
        @functools.wraps(fn)
        async def wrapper(**kwargs):
            return await fn(**kwargs)

        return wrapper

    def handlers():
        @kopf.on.reconcile("widgets", owns=["configmaps"])
        @traced
        @traced
        async def sync(children, **_):
            seen.add(len(children))

    kopf_operator(handlers)
    make("one")
    seen.until(1)


def watches(cluster, plural):
    """The accepted types and the label selectors of the watches of a kind."""
    found = set()
    for entry in cluster.requests:
        options = urllib.parse.parse_qs(entry.query)
        if entry.path.endswith(f"/{plural}") and "watch" in options:
            is_partial = "PartialObjectMetadata" in entry.accept
            found.add((is_partial, options.get("labelSelector", [""])[0]))
    return found


def by_anything(**_):
    return None


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize(
    ("owns", "related", "expected"),
    [
        (["configmaps"], [], (True, "")),
        ([kopf.owned("configmaps", changed="labels", labels={"a": "b"})], [], (True, "a=b")),
        ([kopf.owned("configmaps", changed="data.x")], [], (False, "")),
        ([kopf.owned("configmaps", changed="generation")], [], (False, "")),
        ([], [kopf.watch("configmaps", by="spec.name")], (True, "")),
        ([], [kopf.watch("configmaps", map=kopf.by_label("x"), labels={"x": kopf.PRESENT})], (True, "x")),
        ([], [kopf.watch("configmaps", map=by_anything)], (False, "")),
        (
            [kopf.owned("configmaps", labels={"a": "b"})],
            [kopf.watch("configmaps", map=kopf.same_name(), labels={"a": "c"})],
            (True, "a in (b,c)"),
        ),
        ([kopf.owned("configmaps", labels={"a": "b"})], [kopf.watch("configmaps", by="spec.x")], (True, "")),
    ],
)
def test_2_3_related_kinds_are_watched_as_far_as_they_are_needed(
    cluster, kopf_operator, owns, related, expected
):
    def handlers():
        @kopf.on.reconcile("widgets", owns=owns, watches=related)
        async def sync(**_):
            pass

    kopf_operator(handlers).wait_until_idle()
    assert watches(cluster, "configmaps") == {expected}
    assert watches(cluster, "widgets") == {(False, "")}


@pytest.mark.kopf_embedded_only
def test_2_3_whole_objects_are_watched_if_children_or_other_handlers_read_them(cluster, kopf_operator):
    def handlers():
        @kopf.on.reconcile("widgets", owns=["configmaps", "secrets"])
        async def sync(children, **_):
            pass

        @kopf.on.reconcile("widgets", id="other", owns=[kopf.owned("services", labels={"a": "b"})])
        async def other(**_):
            pass

        @kopf.on.event("services")
        def event(**_):
            pass

    kopf_operator(handlers).wait_until_idle()
    for plural in ("configmaps", "secrets", "services"):
        assert watches(cluster, plural) == {(False, "")}, plural


def test_1_7_the_loss_of_a_label_is_a_trigger_with_a_selector_of_the_server(cluster, make, kopf_operator):
    seen = Seen()

    def handlers():
        @kopf.on.reconcile("widgets", owns=[kopf.owned("configmaps", labels={"app": "x"})])
        async def sync(children, **_):
            seen.add([one.metadata["name"] for one in children.all()])

    one = make("one")
    kopf_operator(handlers)
    cluster.create(child("a", one, labels={"app": "x"}))
    cluster.create(child("b", one))
    seen.until(["a"])
    cluster.patch("configmaps", "a", {"metadata": {"labels": {"app": "y"}}})
    seen.until([])
