"""Section 3.7 and scenarios 7 and 8: waiting for conditions, and watching changes."""

import asyncio
import contextlib
import threading

import kopf
import pytest
from kopf import client as conditions


def deployment(image="i"):
    labels = {"app": "one"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}, "spec": spec}


def report(cluster, generation):
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas", "readyReplicas"), 1)
    status = {**counts, "observedGeneration": generation}
    return cluster.api.patch("deploy", "one", {"status": status}, subresource="status")


def test_3_10_7_ready_means_the_current_generation(cluster):
    cluster.api.create(deployment())
    assert not conditions.ready(cluster.api.get("deploy", "one"))
    report(cluster, 1)
    assert cluster.api.wait_for("deploy", "one", conditions.ready, timeout=30).metadata["generation"] == 1
    cluster.api.edit(
        "deploy", "one", lambda body: body["spec"]["template"]["spec"]["containers"][0].update(image="j")
    )
    assert not conditions.ready(cluster.api.get("deploy", "one"))
    found = []
    thread = threading.Thread(
        target=lambda: found.append(cluster.api.wait_for("deploy", "one", conditions.ready, timeout=30))
    )
    thread.start()
    report(cluster, 2)
    thread.join(40)
    assert [body.status["observedGeneration"] for body in found] == [2]


def test_3_10_8_a_recreated_object_counts_as_gone(client, cluster, config_map):
    first = client.create(config_map)
    waiting = threading.Event()

    def gone(body):
        waiting.set()
        return body is None

    found = []
    thread = threading.Thread(
        target=lambda: found.append(client.wait_for("cm", "one", gone, uid=first.metadata.uid, timeout=30))
    )
    thread.start()
    assert waiting.wait(20)
    cluster.delete("configmaps", "one")
    second = cluster.create(config_map)
    thread.join(40)
    assert found == [None]
    assert client.get("cm", "one").metadata.uid == second["metadata"]["uid"] != first.metadata.uid


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize("change", ["changed", "deleted", "recreated"])
def test_3_7_a_wait_misses_nothing_while_it_is_disconnected(client, cluster, config_map, change):
    client.create(config_map)
    called, following = [], threading.Event()

    def holds(body):
        called.append(body)
        # The first state is read, and the second one comes from the watch.
        if len(called) == 2:
            following.set()
        return body is None or body["data"] == {"x": "changed"}

    found = []
    thread = threading.Thread(target=lambda: found.append(client.wait_for("cm", "one", holds, timeout=60)))
    thread.start()
    assert following.wait(30)
    cluster.disconnect_clients()
    if change == "changed":
        cluster.patch("configmaps", "one", {"data": {"x": "changed"}})
    else:
        cluster.delete("configmaps", "one")
    if change == "recreated":
        cluster.create(config_map)
    cluster.compact()
    cluster.clear_faults()
    thread.join(90)
    assert [body and body["data"] for body in found] == [{"x": "changed"} if change == "changed" else None]


def test_waiting_for_nothing_and_for_anything(client, cluster, config_map):
    assert client.wait_for("cm", "one", conditions.gone, timeout=60) is None
    threading.Timer(0.1, lambda: cluster.create(config_map)).start()
    assert client.wait_for("cm", "one", conditions.exists, timeout=30).metadata.name == "one"
    has_value = kopf.all_([conditions.exists, conditions.field("data.x", "2")])
    threading.Timer(0.1, lambda: cluster.patch("configmaps", "one", {"data": {"x": "2"}})).start()
    assert client.wait_for("cm", "one", has_value, timeout=30)["data"] == {"x": "2"}


def test_a_timeout_has_the_last_state(client):
    widget = {"apiVersion": "behaviours.example.com/v1", "kind": "Widget", "metadata": {"name": "one"}}
    client.create(widget)
    state = {"conditions": [{"type": "Ready", "status": "False", "reason": "Starting"}]}
    client.patch("widgets", "one", {"status": state}, subresource="status")
    with pytest.raises(TimeoutError, match=r"widgets one: .* Ready=False \(Starting\)"):
        client.wait_for("widgets", "one", conditions.condition("Ready"), timeout=0.5)


def test_the_error_of_a_condition_ends_the_wait(client, config_map):
    client.create(config_map)
    with pytest.raises(ZeroDivisionError):
        client.wait_for("cm", "one", lambda body: 1 / 0, timeout=60)


def test_conditions_of_older_generations_do_not_count():
    status = {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]}
    body = kopf.Body({"metadata": {"generation": 2}, "status": status})
    assert not conditions.condition("Ready")(body)
    assert conditions.condition("Ready", current=False)(body)
    assert not conditions.condition("Ready", False, current=False)(body)
    assert not conditions.ready(body)
    assert conditions.ready(kopf.Body({"metadata": {"generation": 1}, "status": status}))
    assert conditions.established(
        kopf.Body(
            {
                "status": {
                    "conditions": [{"type": t, "status": "True"} for t in ("Established", "NamesAccepted")]
                }
            }
        )
    )


def changes(client, count, on_first=lambda: None, **options):
    """The first changes of config maps with a label; the function is called after the first one."""
    first = threading.Event()
    found = []

    def receive(event):
        found.append(event)
        first.set()

    async def collect():
        stream = client.api.watch("cm", labels="a=b", **options)
        async for event in stream:
            receive(event)
            if len(found) == count:
                break
        await stream.aclose()

    thread = threading.Thread(target=lambda: first.wait(60) and on_first())
    thread.start()
    if client.flavour == "async":
        asyncio.run(asyncio.wait_for(collect(), 60))
    else:
        stream = client.api.watch("cm", labels="a=b", **options)
        while len(found) < count:
            receive(next(stream))
        stream.close()
    thread.join(60)
    return found


def test_3_7_changes_have_the_previous_state(client, cluster, config_map):
    cluster.create({**config_map, "metadata": {"name": "one", "labels": {"a": "b"}}})

    def change():
        cluster.patch("configmaps", "one", {"data": {"x": "2"}})
        cluster.delete("configmaps", "one")

    found = changes(client, 3, change)
    assert [event.type for event in found] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event.body["data"]["x"] for event in found] == ["1", "2", "2"]
    assert [event.old and event.old["data"]["x"] for event in found] == [None, "1", "2"]
    assert isinstance(found[0], kopf.ChangeEvent)


@pytest.mark.kopf_embedded_only
def test_3_7_missed_changes_are_delivered_once(cluster, config_map):
    def body(name, value):
        return {**config_map, "metadata": {"name": name, "labels": {"a": "b"}}, "data": {"x": value}}

    cluster.create(body("one", "1"))
    cluster.create(body("two", "1"))
    found = []
    stream = cluster.api.watch("cm", labels="a=b")
    found += [next(stream) for _ in range(2)]
    cluster.disconnect_clients()
    cluster.delete("configmaps", "one")
    cluster.patch("configmaps", "two", {"data": {"x": "2"}})
    cluster.create(body("three", "3"))
    cluster.compact()
    cluster.clear_faults()
    found += [next(stream) for _ in range(3)]
    stream.close()
    summary = sorted((event.type, event.body.metadata.name, event.body["data"]["x"]) for event in found)
    assert summary == [
        ("ADDED", "one", "1"),
        ("ADDED", "three", "3"),
        ("ADDED", "two", "1"),
        ("DELETED", "one", "1"),
        ("MODIFIED", "two", "2"),
    ]


def test_3_7_existing_objects_can_be_left_out(client, cluster, config_map):
    def create(name):
        cluster.create({**config_map, "metadata": {"name": name, "labels": {"a": "b"}}})

    create("old")
    received = threading.Event()

    def create_until_received():
        # Some of them may be created before the watch is open.
        count = 0
        while not received.wait(0.2) and count < 200:
            create(f"new-{count}")
            count += 1

    thread = threading.Thread(target=create_until_received)
    thread.start()
    try:
        [event] = changes(client, 1, initial=False)
    finally:
        received.set()
        thread.join(60)
    assert event.type == "ADDED" and event.body.metadata.name.startswith("new-")


@pytest.mark.kopf_embedded_only
def test_3_9_the_number_of_watches_is_limited(cluster, config_map):
    cluster.create(config_map)
    with kopf.connect_sync(kubeconfig=cluster.kubeconfig) as api:
        streams = [api.watch("cm", cluster.namespace, fields={"metadata.name": "one"}) for _ in range(101)]
        for stream in streams[:-1]:
            assert next(stream).type == "ADDED"
        with pytest.raises(RuntimeError, match="100"):
            next(streams[-1])
        streams[0].close()
        another = api.watch("cm", cluster.namespace, fields={"metadata.name": "one"})
        # The task of the closed stream may still be ending.
        for _ in range(1000):
            with contextlib.suppress(RuntimeError):
                assert next(another).type == "ADDED"
                break
            another = api.watch("cm", cluster.namespace, fields={"metadata.name": "one"})
            threading.Event().wait(0.02)
        else:
            pytest.fail("A closed watch counts for ever.")
        for stream in (*streams, another):
            stream.close()


def test_watches_of_unknown_kinds_are_errors(client):
    with pytest.raises(conditions.UnknownKind):
        changes_of_unknown(client)


def changes_of_unknown(client):
    async def first():
        async for event in client.api.watch("nothing"):
            return event

    return next(client.api.watch("nothing")) if client.flavour == "sync" else asyncio.run(first())
