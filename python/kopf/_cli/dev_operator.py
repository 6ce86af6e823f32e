"""Entry point of the operator process of `kopf dev`: the command line with the credentials of one cluster
only.

In a pod, there is also a service account of a real cluster, and login handlers can return any credentials.
The cluster is in the memory of the parent process: without it, the operator stops.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

from kopf._cli.process import run_command
from kopf._intents.settings import OperatorSettings
from kopf._objects.credentials import LoginError, OnlyCredentials
from kopf._runtime.login import login_with_kubeconfig


def main() -> int | None:
    """Run the command of the arguments: `kopf dev` has read the configuration file.

    The first argument is the descriptor of a pipe whose other end only the parent process has.
    """
    pipe = int(sys.argv.pop(1))
    threading.Thread(target=_stop_with_parent, args=(pipe,), daemon=True).start()
    return run_command(_credentials, is_complete=True)


def _stop_with_parent(pipe: int) -> None:
    with contextlib.suppress(OSError):
        os.read(pipe, 1)  # returns when the other end is closed
    os.kill(os.getpid(), signal.SIGTERM)


def _credentials() -> OnlyCredentials:
    connection = login_with_kubeconfig(settings=OperatorSettings())
    if connection is None:
        raise LoginError("The cluster of `kopf dev` is not known: KUBECONFIG is not set.")
    return OnlyCredentials({"cluster": connection})


if __name__ == "__main__":
    sys.exit(main())
