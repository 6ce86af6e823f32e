"""A link between one operator and its cluster that can be severed: then bytes get lost in both directions."""

import asyncio
import contextlib
import threading
import urllib.parse


class SeveredLink:
    """Forwards connections as bytes. While it is severed, connections stay open, but nothing passes.

    When it is mended, the connections from before are closed: bytes in transit are never delivered.
    """

    def __init__(self, url: str) -> None:
        self._target = urllib.parse.urlsplit(url)
        self._loop = asyncio.new_event_loop()
        self._is_severed = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{self._target.scheme}://127.0.0.1:{port}"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def sever(self) -> None:
        self._is_severed = True

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(self._mend)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._mend)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._finish())
        self._loop.close()

    async def _finish(self) -> None:
        """Let the connections close."""
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0)

    def _mend(self) -> None:
        self._is_severed = False
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.ExitStack() as stack:
            self._register(writer, stack)
            if self._is_severed:
                await writer.wait_closed()
                return
            host, port = self._target.hostname, self._target.port
            upstream_reader, upstream = await asyncio.open_connection(host, port)
            self._register(upstream, stack)
            pumps = [self._pump(reader, upstream), self._pump(upstream_reader, writer)]
            await asyncio.wait([asyncio.ensure_future(pump) for pump in pumps], return_when="FIRST_COMPLETED")

    def _register(self, writer: asyncio.StreamWriter, stack: contextlib.ExitStack) -> None:
        self._writers.add(writer)
        stack.callback(writer.transport.abort)
        stack.callback(self._writers.discard, writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self._is_severed:
                    # Until the link is mended, which closes the connection.
                    await writer.wait_closed()
                    return
                writer.write(data)
                await writer.drain()
