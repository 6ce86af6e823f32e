"""Addresses of the explanations of errors: the rows of the page of messages.

`docs/reference/messages.md` has the same messages and anchors. The metadata of the distribution have the
address of the documentation. Before the first release, it is a placeholder, and no address is shown.

This module is loaded when a command fails.
"""

from __future__ import annotations

import importlib.metadata
import re
import urllib.parse
from collections.abc import Iterable

DISTRIBUTION = "kopf-rs"
LABEL = "Documentation"
RESERVED = ("example.com", "example.net", "example.org")
"""Names that have no documentation: RFC 2606."""

ANCHORS: dict[str, tuple[str, ...]] = {
    "credentials-rejected": (
        "The API server ... rejects the credentials from ... (401 Unauthorized)",
        "Ran out of valid credentials. The API server ... rejects the credentials from ...",
    ),
    "no-credentials": ("Ran out of valid credentials",),
    "incomplete-kubeconfig": (
        "The credentials have no server",
        "The kubeconfig cannot be used: ...",
        "... refers to ..., which is in no kubeconfig",
    ),
    "cannot-reach-server": ("Cannot reach ...",),
    "request-rejected-at-start": ("The API server has responded to ... with the status ...",),
    "no-client-credentials": ("Cannot authenticate ... neither in-cluster, nor via kubeconfig",),
    "startup-handler-failed": ("The startup handler ... failed for good",),
    "cleanup-handler-failed": ("The cleanup handler ... failed for good",),
    "relative-imports": ("Cannot load ...: it uses relative imports",),
    "no-such-file": ("There is no file ...", "There is no module ..."),
    "decorator-without-parentheses": (
        "... needs arguments: @kopf...",
        "... The decorator needs parentheses: ...",
    ),
    "unknown-decorator-option": ("... got an unexpected keyword argument ...; did you mean ...",),
    "private-module": (
        "... No module named 'kopf._core...'",
        "... cannot import name ... from 'kopf._core...'",
    ),
    "cannot-load-file": ("Cannot load ...", "Cannot import the module ..."),
    "no-admission-server": ("Admission handlers exist, but no admission server/tunnel is configured",),
    "webhook-secret": (
        "The webhook server has no permission to ... the Secret ...",
        "The webhook server needs tls.crt, tls.key and ca.crt, but ...",
        "The certificate in the Secret ... is for ..., not for ...",
        "The certificate in the Secret ... cannot be used: ...",
        "The Secret ... cannot be read: ...",
    ),
    "liveness-url": ("... is not a URL such as http://0.0.0.0:8080/healthz",),
    "liveness-port": ("Cannot serve the health status at ...",),
    "lease-name": ("Leader election needs a lease name that all replicas share and no other operator uses",),
    "lease-namespace": ("Leader election needs the namespace of the lease",),
    "overdue-leader": ("Leadership was lost while ... was running",),
    "no-peering-for-dev": ("There is no peering by which this operator could pause the leader",),
    "status-address": ("... is not an address such as 0.0.0.0:8080",),
    "no-peering-crd": ("Cannot find the peering resource for ...",),
}
"""The beginnings of messages by the anchors of their rows; `...` stands for names and values.

The first anchor with a matching message is used, so that special messages precede general ones.
"""


def address_line(message: str, urls: Iterable[str] | None = None) -> str:
    """The line to be added to a message of Kopf, with its line break: empty if there is no explanation.

    Args:
        message: The message without its prefix.
        urls: The URLs of the project, in the format of its metadata; None: those of the distribution.
    """
    anchor = find_anchor(message)
    base = documentation_address(project_urls() if urls is None else urls) if anchor is not None else None
    return f"\nSee {page_address(base)}#{anchor}" if base is not None else ""


def find_anchor(message: str) -> str | None:
    """The anchor of the row that explains the message; None if no row does."""
    for anchor, patterns in ANCHORS.items():
        if any(_matches(pattern, message) for pattern in patterns):
            return anchor
    return None


def _matches(pattern: str, message: str) -> bool:
    parts = [re.escape(part.strip(" ")) for part in pattern.split("...")]
    return re.match(".*".join(parts), message, re.DOTALL) is not None


def documentation_address(urls: Iterable[str]) -> str | None:
    """The address of the documentation without a slash at its end; None if it is a placeholder."""
    for url in urls:
        label, _, address = url.partition(", ")
        host = urllib.parse.urlsplit(address).hostname or ""
        if label == LABEL and host and not f".{host}".endswith(tuple(f".{name}" for name in RESERVED)):
            return address.rstrip("/")
    return None


def page_address(base: str) -> str:
    """The address of the page of messages, either as `make docs` writes it, or as a file of a repository."""
    extension = "md" if "/blob/" in base else "html"
    return f"{base}/reference/messages.{extension}"


def project_urls() -> list[str]:
    """The URLs in the metadata of the distribution; none if it is not installed."""
    try:
        return importlib.metadata.metadata(DISTRIBUTION).get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return []
