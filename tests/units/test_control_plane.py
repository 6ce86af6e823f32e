"""Starting a control plane, with scripts in place of its programs."""

import pathlib

import pytest
from kopf._testing.control_plane import ClusterUnavailableError, ControlPlane

TAKEN = "listen tcp 127.0.0.1:23840: bind: address already in use"


def write_program(path: pathlib.Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def assets(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "assets"
    folder.mkdir()
    write_program(folder / "kube-apiserver", "sleep 0.2; printf 'the flag is wrong'; exit 1")
    return folder


def test_a_port_that_was_taken_meanwhile_is_replaced(tmp_path: pathlib.Path, assets: pathlib.Path) -> None:
    attempts = tmp_path / "attempts"
    write_program(
        assets / "etcd",
        f"""printf '%s\\n' "$*" >> {attempts}
        [ $(wc -l < {attempts}) -gt 1 ] || {{ printf '{TAKEN}'; exit 1; }}
        exec sleep 60""",
    )
    plane = ControlPlane(tmp_path / "plane", assets=assets)
    with pytest.raises(
        ClusterUnavailableError, match="kube-apiserver has exited at once:\nthe flag is wrong"
    ):
        plane.start()
    plane.stop()
    first, second = attempts.read_text().splitlines()
    assert first != second


def test_the_start_fails_if_no_port_can_be_had(tmp_path: pathlib.Path, assets: pathlib.Path) -> None:
    write_program(assets / "etcd", f"printf '{TAKEN}'; exit 1")
    plane = ControlPlane(tmp_path / "plane", assets=assets)
    with pytest.raises(ClusterUnavailableError, match=r"etcd has exited at once:\n.*address already in use"):
        plane.start()
    plane.stop()
