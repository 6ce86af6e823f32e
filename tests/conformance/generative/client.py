"""HTTP client of one API server."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

TIMEOUT = 60


@dataclass(frozen=True)
class Answer:
    """Response of a server; ``body`` is a JSON value, or the text if it is not JSON."""

    code: int
    body: Any
    warnings: list[str]


class Client:
    """Sends requests one after the other on a kept-alive connection."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._token: str = user["token"]
        url = urlsplit(cluster["server"])
        if url.scheme == "http":
            self._connection = http.client.HTTPConnection(url.netloc, timeout=TIMEOUT)
        else:
            context = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
            if data := cluster.get("certificate-authority-data"):
                context.load_verify_locations(cadata=base64.b64decode(data).decode())
            self._connection = http.client.HTTPSConnection(url.netloc, timeout=TIMEOUT, context=context)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """Send a request. A string as the body is sent as it is."""
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": accept,
            "User-Agent": "conformance/1",
        }
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
        try:
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
        except http.client.RemoteDisconnected:
            # kube-apiserver closes the connection when a handler panics.
            self._connection.close()
            return Answer(0, "the server has closed the connection", [])
        text = response.read().decode(errors="replace")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        warnings = [
            w.removeprefix('299 - "').removesuffix('"') for w in response.headers.get_all("Warning", [])
        ]
        return Answer(response.status, value, warnings)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def get(self, path: str) -> Any:
        """Read a JSON document that must exist."""
        answer = self.send("GET", path)
        if answer.code != 200:
            raise LookupError(f"GET {path}: {answer.code} {answer.body}")
        return answer.body
