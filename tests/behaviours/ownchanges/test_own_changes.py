"""An operator's own writes are not changes for its handlers, and are stored in the diff-base in time."""

import itertools
import json
import logging
import time

import kopf
import pytest
from kopf.testing import Cluster, Operator

pytestmark = pytest.mark.kopf_embedded_only
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"x": "1"}}
KIND = "boxes"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{KIND}.own.example.com"},
    "spec": {
        "group": "own.example.com",
        "scope": "Namespaced",
        "names": {"plural": KIND, "kind": "Box"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}
BOX = {"apiVersion": "own.example.com/v1", "kind": "Box", "metadata": {"name": "one"}, "spec": {"x": 1}}


def until(condition, timeout=60):
    """Wait for what the operator does in its own threads."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.01)


def live(handlers, *acts, body=CONFIG):
    """Create an object, run each step while the operator is idle, and return the final object."""
    with Cluster() as cluster:
        cluster.apply(CRD)
        with Operator(cluster, lambda: handlers(cluster)) as operator:
            operator.wait_until_idle()
            cluster.create(body)
            operator.wait_until_idle()
            for act in acts:
                act(cluster)
                operator.wait_until_idle()
            found = cluster.list(body["kind"].lower() + ("s" if body is CONFIG else "es"))
    return found[0] if found else None


def test_a_patch_of_the_first_handler_is_no_update():
    calls, numbers = [], itertools.count()

    def handlers(cluster):
        @kopf.on.create("configmaps")
        @kopf.on.update("configmaps")
        def stamp(patch, reason, **_):
            calls.append(("stamp", reason))
            patch.metadata.annotations["example.com/stamp"] = str(next(numbers))

        @kopf.on.create("configmaps")
        @kopf.on.update("configmaps")
        def work(reason, **_):
            calls.append(("work", reason))

    live(handlers, lambda cluster: cluster.patch("configmaps", "one", {"data": {"x": "2"}}))
    assert calls == [("stamp", "create"), ("work", "create"), ("stamp", "update"), ("work", "update")]


def test_a_function_of_the_patch_is_no_update():
    diffs = []

    def handlers(cluster):
        @kopf.on.create("configmaps")
        def first(patch, **_):
            patch.fns.append(lambda body: body["data"].update(own="yes"))

        @kopf.on.create("configmaps")
        def second(body, **_):
            assert body["data"]["own"] == "yes"

        @kopf.on.update("configmaps")
        def update(diff, **_):
            diffs.append(diff)

    live(handlers)
    assert diffs == []


def test_a_patch_of_a_subhandler_is_no_update():
    diffs, calls = [], []

    def handlers(cluster):
        @kopf.on.create("configmaps")
        def parent(**_):
            for key in ("a", "b"):

                @kopf.subhandler(id=key)
                def child(patch, key=key, **_):
                    calls.append(key)
                    # The changes of the last handler are an update, as in Kopf.
                    if key == "a":
                        patch.metadata.labels[key] = "yes"

        @kopf.on.create("configmaps")
        def last(**_):
            pass

        @kopf.on.update("configmaps")
        def update(diff, **_):
            diffs.append(diff)

    live(handlers)
    assert (calls, diffs) == (["a", "b"], [])


def test_what_a_handler_writes_by_itself_is_no_update():
    diffs = []

    def handlers(cluster):
        @kopf.on.create("configmaps")
        def first(name, **_):
            cluster.patch("configmaps", name, {"metadata": {"labels": {"own": "yes"}}})

        @kopf.on.create("configmaps")
        def second(**_):
            pass

        @kopf.on.update("configmaps")
        def update(diff, **_):
            diffs.append(diff)

    body = live(handlers)
    assert (body["metadata"]["labels"], diffs) == ({"own": "yes"}, [])


def test_what_others_change_between_two_handlers_is_an_update_with_that_only():
    diffs, attempts = [], itertools.count()

    def handlers(cluster):
        @kopf.on.create("configmaps")
        def first(patch, **_):
            patch.metadata.labels["own"] = "yes"

        @kopf.on.create("configmaps")
        def second(**_):
            if not next(attempts):
                raise kopf.TemporaryError("not yet", delay=0.3)

        @kopf.on.update("configmaps")
        def update(diff, **_):
            diffs.append([tuple(item) for item in diff])

    with Cluster() as cluster, Operator(cluster, lambda: handlers(cluster)) as operator:
        operator.wait_until_idle()
        cluster.create(CONFIG)
        cluster.wait_for("configmaps", "one", {"metadata": {"labels": {"own": "yes"}}})
        cluster.patch("configmaps", "one", {"data": {"x": "2"}})
        until(lambda: diffs)
        operator.wait_until_idle()
    assert diffs == [[("change", ("data", "x"), "1", "2")]]


@pytest.mark.parametrize("timeout", [5.0, 0.0])
def test_progress_in_the_status_is_kept_until_the_object_counts_as_handled(timeout):
    calls = []

    def handlers(cluster):
        @kopf.on.startup()
        def configure(settings, **_):
            settings.persistence.progress_storage = kopf.StatusProgressStorage(field="status.progress")
            settings.persistence.consistency_timeout = timeout
            settings.queueing.exit_timeout = 0.1

        @kopf.on.create(KIND, id="create")
        def create(retry, **_):
            calls.append(retry)
            if retry < 1:
                raise kopf.TemporaryError("once more", delay=0.1)
            return "done"

    with Cluster() as cluster:
        cluster.apply(CRD)
        with Operator(cluster, lambda: handlers(cluster)):
            cluster.inject("cut-off", 1, verb="patch", resource=KIND, after=1)
            cluster.create(BOX)
            until(lambda: cluster.is_disconnected)
        cluster.clear_faults()
        with Operator(cluster, lambda: handlers(cluster)) as operator:
            operator.wait_until_idle()
            [body] = cluster.list(KIND)
    assert calls == [0, 1]
    assert body["status"] == {"create": "done", "progress": {}}
    last = body["metadata"]["annotations"]["kopf.zalando.org/last-handled-configuration"]
    assert json.loads(last) == {"spec": {"x": 1}}


def test_no_warning_for_a_patch_sent_with_the_removal_of_the_finalizer(caplog):
    def handlers(cluster):
        @kopf.on.delete("configmaps")
        def bye(patch, **_):
            patch.metadata.annotations["bye"] = "1"

    def delete(cluster):
        cluster.delete("configmaps", "one")

    body = {**CONFIG, "metadata": {"name": "one", "finalizers": ["example.com/other"]}}
    caplog.set_level(logging.WARNING)
    with Cluster() as cluster, Operator(cluster, lambda: handlers(cluster)) as operator:
        operator.wait_until_idle()
        cluster.create(body)
        operator.wait_until_idle()
        delete(cluster)
        operator.wait_until_idle()
        there = cluster.get("configmaps", "one")
    assert there["metadata"]["finalizers"] == ["example.com/other"]
    assert there["metadata"]["annotations"]["bye"] == "1"
    assert [it for it in caplog.messages if "annotations" in it] == []


@pytest.mark.parametrize("compat", [None, "1.45"])
def test_daemons_and_timers_find_their_object_in_the_indices(compat):
    seen = {}

    def handlers(cluster):
        @kopf.on.startup()
        def configure(settings, **_):
            settings.process.compat = compat

        @kopf.index("configmaps", id="names")
        def names(name, **_):
            return {name: 1}

        @kopf.daemon("configmaps")
        async def daemon(names, name, stopped, **_):
            seen.setdefault("daemon", name in names)
            await stopped.wait()

        @kopf.timer("configmaps", interval=100)
        async def timer(names, name, **_):
            seen.setdefault("timer", name in names)

        @kopf.daemon("configmaps")
        def thread(names, name, stopped, **_):
            seen.setdefault("thread", name in names)
            stopped.wait()

    with Cluster() as cluster, Operator(cluster, lambda: handlers(cluster)) as operator:
        operator.wait_until_idle()
        cluster.create(CONFIG)
        until(lambda: len(seen) == 3)
    assert seen == {"daemon": True, "timer": True, "thread": True}


def test_subhandlers_that_do_not_match_leave_no_trace():
    records = []

    def handlers(cluster):
        @kopf.on.create("configmaps", id="parent")
        def parent(retry, annotations, **_):
            @kopf.subhandler(id="child", labels={"unused": "label"})
            def child(**_):
                pass

            if not retry:
                raise kopf.TemporaryError("once more", delay=0.1)

        @kopf.on.create("configmaps", id="other")
        def other(body, retry, **_):
            if not retry:
                raise kopf.TemporaryError("twice", delay=0.3)
            records.append(json.loads(body.metadata["annotations"]["kopf.zalando.org/parent"]))

    with Cluster() as cluster, Operator(cluster, lambda: handlers(cluster)) as operator:
        operator.wait_until_idle()
        cluster.create(CONFIG)
        until(lambda: records)
    assert "subrefs" not in records[0]
