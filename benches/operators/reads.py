"""R4: reads by the client and from a cache, a thousand times in a row. Section 3.10, scenario 14."""

import asyncio
import http.client
import threading
import time
import urllib.parse

import kopf
from reporting import GROUP, is_probe, once

TIMES = 1000
NAMESPACE, PROBE = "default", "probe-000000"
PATH = f"/apis/{GROUP[0]}/{GROUP[1]}/namespaces/{NAMESPACE}/{GROUP[2]}/{PROBE}"
benches = kopf.cache(*GROUP, id="benches", by={"group": lambda name, **_: int(name[-6:]) % 20})
are_done = threading.Event()


@kopf.on.login()
def login(**kwargs):
    login.info = kopf.login_with_kubeconfig(**kwargs)
    return login.info


def bare_reads():
    """The same requests by the standard library; the responses are not decoded."""
    info = login.info
    server = urllib.parse.urlsplit(info.server)
    if server.scheme == "https":
        connection = http.client.HTTPSConnection(server.netloc, context=info.as_ssl_context())
    else:
        connection = http.client.HTTPConnection(server.netloc)
    for _ in range(TIMES):
        connection.request("GET", PATH, headers=info.as_http_headers())
        response = connection.getresponse()
        assert response.status == 200
        response.read()
    connection.close()


def cost(started):
    """Microseconds of CPU per read."""
    return (time.process_time() - started) / TIMES * 1e6


@kopf.on.event(*GROUP)
async def read(name, api, **_):
    if not is_probe(name):
        return
    costs = {}
    await api.get("benches", name)
    started = time.process_time()
    for _ in range(TIMES):
        await api.get("benches", name)
    costs["coroutine"] = cost(started)
    started = time.process_time()
    await asyncio.to_thread(bare_reads)
    costs["bare"] = cost(started)
    started = time.process_time()
    for _ in range(TIMES):
        benches.get(name, NAMESPACE)
    costs["cached"] = cost(started)
    assert len(benches.select(group=7)) == 100
    started = time.process_time()
    for _ in range(TIMES):
        benches.select(group=7)
    costs["selected"] = cost(started)
    once("reads", **costs)
    are_done.set()


@kopf.on.event(*GROUP)
def read_in_a_thread(name, api, **_):
    if not is_probe(name):
        return
    assert are_done.wait(60)
    started = time.process_time()
    for _ in range(TIMES):
        api.get("benches", name)
    once("blocking_reads", thread=cost(started))
