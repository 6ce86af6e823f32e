"""Runs etcd and kube-apiserver of `KUBEBUILDER_ASSETS` until it is terminated. The harness starts it with the
interpreter of kopf-rs, which contains the control plane of `kopf.testing`.

    control_plane.py FOLDER

It prints a line when the API server serves requests; the kubeconfig is `FOLDER/kubeconfig` then.
"""

from __future__ import annotations

import pathlib
import signal
import sys

from kopf._testing.control_plane import ControlPlane, find_assets


def main() -> None:
    """Run the control plane."""
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    folder = pathlib.Path(sys.argv[1])
    # Without kube-controller-manager, which would use CPU time next to the operator.
    assets = folder / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (assets / name).symlink_to((find_assets() / name).resolve())
    plane = ControlPlane(folder, assets=assets)
    try:
        plane.start()
        print("ready", flush=True)
        signal.sigwait(signals)
    finally:
        plane.stop()


if __name__ == "__main__":
    main()
