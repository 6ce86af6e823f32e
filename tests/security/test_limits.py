"""Limits of clients without credentials: memory and connections of an operator's servers."""

import contextlib
import http.client
import pathlib
import re
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

SERVER = """
import asyncio
import kopf

async def allow(request, **_):
    return {"allowed": True}

async def main():
    async with kopf.WebhookServer(addr="127.0.0.1", insecure=True) as server:
        async for config in server(allow):
            print(config["url"].rpartition(":")[2], flush=True)

asyncio.run(main())
"""
BODY = 7_900_000
HELD = 120
QUIET = 1.0
"""Seconds in which no connection takes more, after which none will."""

pytestmark = pytest.mark.skipif(
    not pathlib.Path("/proc/self/status").exists(), reason="only Linux shows memory"
)


@pytest.fixture
def server() -> Iterator[tuple[int, int]]:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.kill()


def anonymous_memory(pid: int) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def send_all_that_is_taken(connections: list[socket.socket]) -> None:
    chunk = bytes(65536)
    with selectors.DefaultSelector() as selector:
        left = dict.fromkeys(connections, BODY)
        for connection in connections:
            selector.register(connection, selectors.EVENT_WRITE)
        while left and (ready := selector.select(QUIET)):
            for key, _ in ready:
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                with contextlib.suppress(BlockingIOError):
                    left[connection] -= connection.send(chunk[: left[connection]])
                if left[connection] <= 0:
                    selector.unregister(connection)
                    del left[connection]


def test_incomplete_reviews_of_many_callers_do_not_fill_the_memory(server):
    pid, port = server
    before = anonymous_memory(pid)
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(HELD):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            connection.sendall(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n")
            connection.setblocking(False)
            connections.append(connection)
        send_all_that_is_taken(connections)
        assert anonymous_memory(pid) - before < 128 * 1024 * 1024
        caller = stack.enter_context(
            contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60))
        )
        caller.request("POST", "/x", b"{}")
        assert caller.getresponse().status == 200
