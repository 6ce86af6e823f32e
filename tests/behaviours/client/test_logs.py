"""The logs of containers, by the API client. Section 3.3, `logs`; 3.6."""

import asyncio
import datetime
import threading

import kopf
import pytest
from kopf.client import NotFound


def pod(name="p", *containers, node=None):
    listed = [{"name": container, "image": "x"} for container in containers or ("c",)]
    spec = {"containers": listed, **({"nodeName": node} if node else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def read(client, *args, **options):
    """The lines of a log that ends."""

    async def collect():
        return [line async for line in client.api.logs(*args, **options)]

    if client.flavour == "sync":
        return list(client.api.logs(*args, **options))
    return asyncio.run(asyncio.wait_for(collect(), 60))


def test_3_3_rejected_requests_for_logs(cluster, client):
    cluster.create(pod("one"))
    cluster.create(pod("two", "a", "b"))
    assert read(client, "one") == []
    with pytest.raises(NotFound, match='pods "none" not found'):
        read(client, "none")
    with pytest.raises(kopf.ApiError, match=r"choose one of: \[a b\]"):
        read(client, "two")
    with pytest.raises(kopf.ApiError, match="container zz is not valid for pod two"):
        read(client, "two", container="zz")
    with pytest.raises(kopf.ApiError, match="must be greater than or equal to 0"):
        read(client, "one", tail=-1)
    with pytest.raises(ValueError, match="needs a time zone"):
        read(client, "one", since=datetime.datetime(2026, 1, 1))


@pytest.mark.kopf_embedded_only
def test_3_3_lines_are_selected(cluster, client):
    cluster.freeze()
    cluster.create(pod("p", "c", "sidecar", node="n"))
    assert read(client, "p", container="c") == []
    cluster.script("p", logs=["one", "", "three"])
    cluster.script("p", container="sidecar", logs=["other"])
    assert read(client, "p", container="c") == ["one", "", "three"]
    assert read(client, "p", container="sidecar") == ["other"]
    assert read(client, "p", container="c", tail=1) == ["three"]
    cluster.advance(60)
    start = datetime.datetime.fromisoformat(
        read(client, "p", container="c", timestamps=True)[0].split()[0][:26] + "Z"
    )
    cluster.script("p", logs=["later"])
    assert read(client, "p", container="c", since=30) == ["later"]
    assert read(client, "p", container="c", since=datetime.timedelta(minutes=2)) == [
        "one",
        "",
        "three",
        "later",
    ]
    assert read(client, "p", container="c", since=start + datetime.timedelta(seconds=1)) == ["later"]
    last = read(client, "p", container="c", timestamps=True)[-1]
    assert last.endswith("Z later")
    with pytest.raises(kopf.ApiError, match='previous terminated container "c" in pod "p" not found'):
        read(client, "p", container="c", previous=True)


@pytest.mark.kopf_embedded_only
def test_3_3_a_log_is_followed_until_the_pod_ends(cluster, client):
    cluster.create(pod())
    cluster.script("p", logs=["one"])
    lines = follow(client)
    lines.until(["one"])
    cluster.script("p", logs=["two", "three"])
    lines.until(["one", "two", "three"])
    status = {"status": {"phase": "Succeeded"}}
    cluster.call("PATCH", f"/api/v1/namespaces/{cluster.namespace}/pods/p/status", status)
    lines.join()
    assert lines.found == ["one", "two", "three"]


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize("timestamps", [False, True])
def test_3_6_a_log_continues_after_a_broken_connection(cluster, client, timestamps):
    cluster.create(pod())
    cluster.script("p", logs=["zero", *(f"line {number}" for number in range(100))])
    lines = follow(client, tail=100, timestamps=timestamps)
    lines.until_count(100)
    cluster.disconnect_clients()
    cluster.script("p", logs=["while disconnected"])
    cluster.clear_faults()
    cluster.script("p", logs=["last"])
    lines.until_count(102)
    cluster.delete("pods", "p")
    lines.join()
    texts = [line.partition(" ")[2] for line in lines.found] if timestamps else lines.found
    assert texts == [*(f"line {number}" for number in range(100)), "while disconnected", "last"]


class Follower(threading.Thread):
    """Follows a log in a thread."""

    def __init__(self, client, options):
        super().__init__(daemon=True)
        self.client, self.options = client, options
        self.found = []
        self.changed = threading.Condition()

    def run(self):
        if self.client.flavour == "sync":
            for line in self.client.api.logs("p", follow=True, **self.options):
                self.add(line)
        else:
            asyncio.run(self.follow())

    async def follow(self):
        async for line in self.client.api.logs("p", follow=True, **self.options):
            self.add(line)

    def add(self, line):
        with self.changed:
            self.found.append(line)
            self.changed.notify_all()

    def until(self, lines):
        with self.changed:
            assert self.changed.wait_for(lambda: self.found == lines, 30), self.found

    def until_count(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.found) >= count, 30), self.found

    def join(self, timeout=30):
        super().join(timeout)
        assert not self.is_alive()


def follow(client, **options):
    follower = Follower(client, options)
    follower.start()
    return follower
