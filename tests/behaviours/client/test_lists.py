"""Section 3.10, scenario 2: lists are read page by page, and each object is delivered once."""

import asyncio
import gc
import weakref

import pytest

COUNT, CHUNK = 1250, 500


def fill(cluster, config_map, count):
    path = f"/api/v1/namespaces/{cluster.namespace}/configmaps"
    cluster.call_all(
        [
            ("POST", path, {**config_map, "metadata": {"name": f"n{i:04}", "labels": {"a": "b"}}})
            for i in range(count)
        ]
    )


@pytest.mark.kopf_embedded_only
def test_3_10_2_pages_are_fetched_on_demand(client, cluster, config_map):
    fill(cluster, config_map, COUNT)
    cluster.clear_requests()
    bodies = client.list("cm", labels="a=b", chunk=CHUNK)
    assert [body.metadata.name for body in bodies] == [f"n{i:04}" for i in range(COUNT)]
    assert {body["kind"] for body in bodies} == {"ConfigMap"}
    assert len([it for it in cluster.requests if it.path.endswith("/configmaps")]) == 3


@pytest.mark.kopf_embedded_only
def test_3_10_2_only_one_page_is_in_memory(cluster, config_map):
    fill(cluster, config_map, 100)
    references, counts = [], []

    async def read():
        async for body in cluster.async_api.list("cm", labels="a=b", chunk=10):
            references.append(weakref.ref(body))
            if len(references) % 10 == 0:
                gc.collect()
                counts.append(sum(reference() is not None for reference in references))

    asyncio.run(read())
    assert len(references) == 100 and max(counts) <= 11, counts


@pytest.mark.kopf_embedded_only
def test_3_10_2_an_expired_continuation_starts_the_list_again(cluster, config_map):
    fill(cluster, config_map, 20)

    async def read():
        names = []
        async for body in cluster.async_api.list("cm", labels="a=b", chunk=10):
            names.append(body.metadata.name)
            if len(names) == 5:
                for name in ("n0003", "n0015"):
                    cluster.delete("configmaps", name)
                cluster.create({**config_map, "metadata": {"name": "a-new-one", "labels": {"a": "b"}}})
                cluster.inject("gone", verb="list", resource="configmaps", times=1)
        return names

    names = asyncio.run(read())
    assert len(names) == len(set(names)) == 20
    assert "a-new-one" in names and "n0003" in names and "n0015" not in names


def test_3_10_2_lists_are_consistent_over_pages(client, config_map):
    for index in range(5):
        client.create({**config_map, "metadata": {"name": f"n{index}", "labels": {"a": "b"}}})
    assert [body.metadata.name for body in client.list("cm", labels="a=b", chunk=2)] == [
        f"n{i}" for i in range(5)
    ]
    assert len(client.list("cm", labels="a=b", chunk=2, most=3)) == 3
    assert client.list("cm", most=0) == []
    [one] = client.list("cm", fields={"metadata.name": "n3"}, metadata_only=True)
    assert (one.metadata.name, one["kind"], "data" in one) == ("n3", "ConfigMap", False)


def test_awaited_lists_have_the_version_of_the_list(cluster, config_map):
    created = cluster.api.create(config_map)

    async def read():
        return await cluster.async_api.list("cm")

    listing = asyncio.run(read())
    assert created.metadata.uid in [body.metadata.uid for body in listing]
    assert int(listing.version) >= int(created.metadata["resourceVersion"])
    assert int(cluster.api.list("cm").version) >= int(listing.version)
