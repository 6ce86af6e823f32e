"""`make demo`: an operator of ten lines handles an object on a cluster.

The cluster is that of the kubeconfig, if there is one; else a control plane from the binaries in
KUBEBUILDER_ASSETS, if it is set; else the embedded API server. Everything created on an existing cluster is
removed at the end.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import kopf.testing
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # it can be run by its path, too

from tests.support import cluster as kube  # noqa: E402
from tests.support import controlplane  # noqa: E402

EXAMPLE = ROOT / "examples" / "01-minimal"
HANDLED = kube.PREFIX + "last-handled-configuration"
NAMESPACE = "default"


def main() -> int:
    try:
        with any_cluster() as kubeconfig:
            return show(kube.Cluster(kubeconfig))
    except controlplane.ClusterUnavailableError as error:
        print(
            f"There is no cluster for the demo: {error}.\n"
            "Unset KUBECONFIG and KUBEBUILDER_ASSETS to run it with no cluster at all.",
            file=sys.stderr,
        )
        return 2


@contextlib.contextmanager
def any_cluster() -> Iterator[pathlib.Path]:
    given = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = pathlib.Path(given or "~/.kube/config").expanduser()
    if path.exists():
        print(f"# On the cluster of {path}.")
        yield path
    elif given:
        raise controlplane.ClusterUnavailableError(f"KUBECONFIG={given} does not exist")
    elif not os.environ.get("KUBEBUILDER_ASSETS"):
        print("# There is no cluster: starting the embedded one.")
        with kopf.testing.Cluster() as embedded:
            yield embedded.kubeconfig
    else:
        assets = controlplane.find_assets()
        print("# Starting a control plane: etcd, kube-apiserver, kube-controller-manager.")
        with controlplane.running(assets) as plane:
            yield plane.kubeconfig


def show(cluster: kube.Cluster) -> int:
    print(f"# The server: {cluster.server}, {cluster.request('GET', '/version')['gitVersion']}.")
    crd = yaml.safe_load((EXAMPLE / "crd.yaml").read_text())
    body = yaml.safe_load((EXAMPLE / "obj.yaml").read_text())
    name = body["metadata"]["name"]
    ours = cluster.find(kube.CRDS, None, crd["metadata"]["name"]) is None
    print("# Applying crd.yaml.")
    resource = cluster.create_crd(crd) if ours else cluster.await_crd(crd)
    cluster.delete(resource, NAMESPACE, name)
    print(f"# Starting: kopf run -A {EXAMPLE.relative_to(ROOT)}/example.py")
    operator = subprocess.Popen(
        [sys.executable, "-m", "kopf", "run", "-A", str(EXAMPLE / "example.py")],
        stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "PYTHONUNBUFFERED": "1"},
    )
    reader = threading.Thread(target=print_output, args=(operator,))
    reader.start()

    def check() -> None:
        if operator.poll() is not None:
            raise kube.Timeout(f"The operator has exited with {operator.returncode}; see its log above.")

    try:
        print("# Applying obj.yaml.")
        cluster.create(resource, NAMESPACE, body)
        found = cluster.wait(resource, NAMESPACE, name, is_handled, timeout=60, alive=check)
        operator.send_signal(signal.SIGTERM)
        code = operator.wait(timeout=60)
        reader.join()
        assert found is not None
        print(f"\n# The operator has stopped with the exit code {code}. The object now:")
        print(f"status: {json.dumps(found['status'])}")
        print(f"{HANDLED}: {found['metadata']['annotations'][HANDLED].strip()}")
        return code
    except kube.Timeout as error:
        print(f"# {error}", file=sys.stderr)
        return 1
    finally:
        if operator.poll() is None:
            operator.kill()
            operator.wait()
        reader.join()
        with contextlib.suppress(kube.ApiError):
            cluster.delete(resource, NAMESPACE, name)
            if ours:
                cluster.delete(kube.CRDS, None, crd["metadata"]["name"])


def is_handled(body: dict[str, Any] | None) -> bool:
    """Whether the results and the last handled state are there: the results are written first."""
    return body is not None and "status" in body and HANDLED in body["metadata"].get("annotations", {})


def print_output(operator: "subprocess.Popen[str]") -> None:
    """Show the operator's log as it comes."""
    assert operator.stdout is not None
    for line in operator.stdout:
        print(f"  {line}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
