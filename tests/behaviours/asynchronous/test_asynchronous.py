"""The testing kit in asyncio: its awaitables are resolved by the API server, and the interpreter exits
cleanly with pending ones.
"""

import asyncio
import subprocess
import sys

import kopf
import pytest
from kopf.testing import Cluster, Operator

pytestmark = pytest.mark.kopf_embedded_only
EXITS = 25
CONFIG = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {a: b}}"
# Each is another way of an interpreter to its end, with something awaited that does not come.
ENDINGS = {
    "a task is left to the end of the loop": """
        async def main():
            cluster = await Cluster().__aenter__()
            asyncio.ensure_future(cluster.wait_until(lambda: False, timeout=None))
            await asyncio.sleep(0)
            return cluster
        cluster = asyncio.run(main())
    """,
    "the loop is left open": """
        loop = asyncio.new_event_loop()
        cluster = loop.run_until_complete(Cluster().__aenter__())
        async def main():
            return cluster._embedded.wait_for_request(1_000)
        pending = loop.run_until_complete(main())
    """,
    "the loop is closed, and the awaitable is ready": """
        loop = asyncio.new_event_loop()
        async def main():
            return [ApiServer.launch() for _ in range(3)]
        pending = loop.run_until_complete(main())
    """,
    "the loop goes on in a thread": """
        servers, enough = [], threading.Event()
        def run():
            async def main():
                while True:
                    server = await ApiServer.launch()
                    servers.append(server)
                    if len(servers) == 3:
                        enough.set()
                    await asyncio.wait([asyncio.ensure_future(server.wait_for_request(5))], timeout=0.001)
            try:
                asyncio.run(main())
            except RuntimeError:
                pass
        threading.Thread(target=run, daemon=True).start()
        enough.wait()
    """,
    "the process is asked to exit": """
        async def main():
            global cluster
            cluster = await Cluster().__aenter__()
            asyncio.ensure_future(cluster.wait_until(lambda: False, timeout=None))
            await asyncio.sleep(0)
            sys.exit()
        asyncio.run(main())
    """,
}


def test_a_cluster_is_started_and_watched_in_asyncio():
    def handlers():
        @kopf.on.create("configmaps", id="count")
        def count(body, patch, **_):
            patch.meta.annotations["example.com/keys"] = str(len(body["data"]))

    async def main():
        async with Cluster() as cluster:
            with Operator(cluster, handlers):
                cluster.apply(CONFIG)
                patch = await cluster.wait_until(
                    lambda: [it for it in cluster.requests if it.method == "PATCH"]
                )
                assert patch[0].json["metadata"]["annotations"]["example.com/keys"] == "1"
                with pytest.raises(TimeoutError):
                    await cluster.wait_until(lambda: None, timeout=0.05)

    asyncio.run(main())


def test_the_end_of_the_server_ends_the_waiting():
    async def main():
        async with Cluster() as cluster:
            waiting = asyncio.ensure_future(cluster.wait_until(lambda: None))
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="shut down"):
            await waiting

    asyncio.run(main())


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_interpreter_exits_with_pending_awaitables(ending, tmp_path):
    imports = "import asyncio, sys, threading\nfrom kopf._kopf import ApiServer\n"
    script = tmp_path / "script.py"
    body = "\n".join(line[8:] for line in ENDINGS[ending].splitlines())
    script.write_text(f"{imports}from kopf.testing import Cluster\n{body}")
    for _ in range(EXITS // len(ENDINGS)):
        done = subprocess.run(
            [sys.executable, script], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
