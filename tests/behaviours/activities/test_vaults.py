"""The credentials in the vault of an embedded operator, and a server whose TLS fails."""

import asyncio
import contextlib
import dataclasses
import urllib.parse

import kopf
import pytest
from kopf.testing import Cluster

HANDSHAKE_FAILURE = b"\x15\x03\x03\x00\x02\x02\x28"


class TlsPath:
    """A TCP proxy to a server. It can reject handshakes instead, as a load balancer without backends does."""

    def __init__(self, url):
        address = urllib.parse.urlsplit(url)
        self._target = (address.hostname, address.port)
        self._writers = set()
        self.rejects = False
        self.url = ""

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.cut()

    def cut(self):
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader, writer):
        self._writers.add(writer)
        with contextlib.closing(writer), contextlib.suppress(OSError):
            if self.rejects:
                await reader.read(1)
                writer.write(HANDSHAKE_FAILURE)
                await writer.drain()
                return
            inner_reader, inner_writer = await asyncio.open_connection(*self._target)
            self._writers.add(inner_writer)
            with contextlib.closing(inner_writer):
                await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))


async def _pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.kopf_embedded_only
def test_a_failed_handshake_does_not_lead_to_the_cluster_of_the_kubeconfig(
    cluster, make, monkeypatch, caplog
):
    registry, calls = kopf.OperatorRegistry(), []

    async def until(condition):
        while not condition():
            await asyncio.sleep(0.01)

    async def main():
        stop = asyncio.Event()

        @kopf.on.event("widgets", registry=registry)
        async def changed(spec, **_):
            calls.append(spec.get("x"))

        async with TlsPath(cluster.url) as path:
            vault = {"given": dataclasses.replace(cluster.connection, server=path.url)}
            operator = asyncio.create_task(
                kopf.operator(
                    registry=registry, vault=vault, clusterwide=True, standalone=True, stop_flag=stop
                )
            )
            await until(lambda: calls == [1])
            path.rejects = True
            path.cut()
            await until(lambda: "Certificates are not accepted" in caplog.text)
            path.rejects = False
            await asyncio.to_thread(cluster.patch, "widgets", "one", {"spec": {"x": 2}})
            await until(lambda: calls[-1] == 2)
            stop.set()
            await operator

    with Cluster() as other:
        monkeypatch.setenv("KUBECONFIG", str(other.kubeconfig))
        make(spec={"x": 1})
        asyncio.run(asyncio.wait_for(main(), 60))
        assert [it.path for it in other.requests] == []
