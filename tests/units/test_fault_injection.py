"""The proxy by which the tests on a real control plane inject faults."""

import contextlib
import http.client
import socket

import pytest

from tests.support.proxy import Proxy


class SilentCluster:
    """A cluster that receives requests and never responds."""

    def __init__(self, server):
        self._port = server.getsockname()[1]
        self._headers = {}

    def _connect(self, timeout):
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout)


@pytest.mark.parametrize("path", ["/parcels?watch=true", "/parcels"])
def test_a_cut_before_the_response_closes_the_connection_of_the_client(path):
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        proxy = stack.enter_context(contextlib.closing(Proxy(SilentCluster(server))))
        port = int(proxy.url.rpartition(":")[2])
        client = stack.enter_context(
            contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30))
        )
        client.request("GET", path)
        upstream = stack.enter_context(server.accept()[0])
        assert upstream.recv(65536).startswith(b"GET /parcels")
        proxy.cut()
        with pytest.raises(http.client.RemoteDisconnected):
            client.getresponse()
