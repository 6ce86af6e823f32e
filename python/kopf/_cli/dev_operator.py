"""Entry point of the operator process of `kopf dev`: the command line with the credentials of one cluster
only.

In a pod, there is also a service account of a real cluster, and login handlers can return any credentials.
"""

from __future__ import annotations

import sys

from kopf._cli.process import run_command
from kopf._intents.settings import OperatorSettings
from kopf._objects.credentials import LoginError, OnlyCredentials
from kopf._runtime.login import login_with_kubeconfig


def main() -> int | None:
    """Run the command of the arguments: `kopf dev` has read the configuration file."""
    return run_command(_credentials, is_complete=True)


def _credentials() -> OnlyCredentials:
    connection = login_with_kubeconfig(settings=OperatorSettings())
    if connection is None:
        raise LoginError("The cluster of `kopf dev` is not known: KUBECONFIG is not set.")
    return OnlyCredentials({"cluster": connection})


if __name__ == "__main__":
    sys.exit(main())
