"""The endpoint of the health checks."""

from __future__ import annotations

from kopf._runtime.errors import OperationalError


def parse_endpoint(endpoint: str) -> tuple[str, int, str]:
    """The host, the port, and the path of the endpoint."""
    import urllib.parse

    parts = urllib.parse.urlsplit(endpoint)
    if parts.scheme != "http":
        raise OperationalError(f"Unsupported scheme: {endpoint}")
    return parts.hostname or "localhost", parts.port or 80, parts.path or "/"
