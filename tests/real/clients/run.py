"""Run the flow of one client on the cluster of `KUBECONFIG`, and print its outcomes as JSON.

python run.py CLIENT
"""

import contextlib
import importlib
import json
import sys
from typing import Any

from flow import Flow

CLIENTS = {
    "kubernetes": ("official_client", "OfficialClient", ["kubernetes"]),
    "kubernetes-asyncio": ("official_client", "OfficialClient", ["kubernetes_asyncio"]),
    "kr8s": ("kr8s_client", "Kr8sClient", []),
    "lightkube": ("lightkube_client", "LightkubeClient", []),
    "pykube": ("pykube_client", "PykubeClient", []),
    "kubectl": ("kubectl_client", "KubectlClient", []),
    "helm": ("helm_flow", "HelmFlow", []),
}


def main(name: str) -> None:
    module, kind, arguments = CLIENTS[name]
    namespace = f"flow-{name}"
    made: Any = getattr(importlib.import_module(module), kind)(*arguments, namespace)
    with contextlib.closing(made):
        outcomes = made.run() if name == "helm" else Flow(made, name, namespace).run()
    print(json.dumps(outcomes, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
