"""Identity of an operator among its peers."""

from __future__ import annotations

import contextlib
import datetime
import getpass
import os
import socket
import string
from typing import NewType

from kopf._intents import compatibility

Identity = NewType("Identity", str)
"""The name of an operator among its peers."""


def detect_own_id(*, manual: bool) -> Identity:
    """Make an identity: of a person if something is done manually, else of a pod or of a process.

    A person in a pod, as by `kubectl exec`, is not the operator of the pod: that ignores its own record, and
    overwrites it.
    """
    pod = os.environ.get("POD_ID")
    if pod and (not manual or compatibility.of_environment().shares_identity_of_pod):
        return Identity(pod)
    person = f"{_user()}@{_host()}"
    if manual:
        return Identity(person)
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d%H%M%S")
    alphabet = string.ascii_lowercase + string.digits
    rnd = "".join(alphabet[byte % len(alphabet)] for byte in os.urandom(3))
    return Identity(f"{person}/{now}/{rnd}")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # in containers, users often have no names


def _host() -> str:
    try:
        name = socket.getfqdn()
    except UnicodeError:  # the system's name is no valid name in DNS
        name = ""
    if "." not in name or name.endswith(".arpa") or _is_address(name):
        name = socket.gethostname()
    return name.removesuffix(".localdomain").removesuffix(".local")


def _is_address(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, name)
            return True
    return False
