"""Webhook servers that serve the certificate of a Secret: their options, and their function."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest
from kopf._kits.webhooks.servers import has_own_certificate

HOST = "ours.default.svc"


async def respond(request: Any, **_: Any) -> Any:
    return {"request": request}


def serve(**options: Any) -> Any:
    async def main() -> Any:
        async with kopf.WebhookServer(addr="127.0.0.1", **options) as server:
            return await anext(aiter(server(respond)))

    return asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("option", [{"insecure": True}, {"certfile": "a"}, {"pkeyfile": "a"}])
def test_a_secret_excludes_other_certificates(option):
    with pytest.raises(ValueError, match="can have neither certfile, pkeyfile, nor insecure"):
        serve(secret="ours", **option)


def test_a_secret_needs_the_function_of_the_operator():
    with pytest.raises(ValueError, match="needs the client of an operator"):
        serve(secret="ours")


def test_an_empty_name_is_no_secret():
    pytest.importorskip("kopf._kopf", reason="the native module is not built")
    assert serve(secret="")["url"].startswith("https://")


class Extended(kopf.WebhookServer):
    """A server whose replicas may have a common certificate."""

    @staticmethod
    def build_certificate(hostnames: Any, password: str | None = None) -> tuple[bytes, bytes]:
        return b"", b""


@pytest.mark.parametrize(
    "server, expected",
    [
        (kopf.WebhookServer(host=HOST), True),
        (kopf.WebhookServer(extra_sans=[HOST]), True),
        (kopf.WebhookServer(host=HOST, certfile="a"), True),
        (kopf.WebhookServer(host=HOST, certfile="a", pkeyfile="b"), False),
        (kopf.WebhookServer(host=HOST, secret="ours"), False),
        (kopf.WebhookServer(host=HOST, insecure=True), False),
        (kopf.WebhookServer(), False),
        (kopf.WebhookServer(host="localhost"), False),
        (kopf.WebhookK3dServer(), False),
        (Extended(host=HOST), False),
        (None, False),
    ],
)
def test_replicas_with_an_own_certificate_for_each_are_recognised(server, expected):
    assert has_own_certificate(server) is expected
