"""Credentials of a kubeconfig's user that are not in the kubeconfig itself: exec plugins and token files.

Operators need none of this: their engine does the same. It is for commands that make requests themselves.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
from collections.abc import Mapping
from typing import Any

from kopf._objects.credentials import ConnectionInfo, LoginError

TIMEOUT = 60.0


def complete(connection: ConnectionInfo, user: Mapping[str, Any]) -> ConnectionInfo:
    """The connection with the credentials of the user's plugin or token file, if there is one.

    A plugin that fails is a `LoginError`, a missing file an `OSError`.
    """
    if user.get("exec"):
        status = _run(user["exec"])
        return dataclasses.replace(
            connection,
            token=status.get("token") or connection.token,
            certificate_data=status.get("clientCertificateData") or connection.certificate_data,
            private_key_data=status.get("clientKeyData") or connection.private_key_data,
        )
    if user.get("tokenFile"):
        token = pathlib.Path(user["tokenFile"]).read_text(encoding="utf-8").strip()
        return dataclasses.replace(connection, token=token)
    return connection


def _run(config: Mapping[str, Any]) -> Mapping[str, Any]:
    command = [config["command"], *(config.get("args") or ())]
    what = f"The exec plugin {command[0]!r} of the kubeconfig"
    request = {
        "apiVersion": config.get("apiVersion") or "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    variables = {item["name"]: item["value"] for item in config.get("env") or ()}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(request)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LoginError(f"{what} has failed: {error}") from None
    if done.returncode != 0:
        # The output can have tokens; the messages are for people.
        message = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise LoginError(f"{what} has failed with the exit code {done.returncode}: {message}")
    try:
        status = json.loads(done.stdout)["status"]
        return dict(status)
    except (ValueError, KeyError, TypeError):
        raise LoginError(f"{what} has returned no credentials.") from None
