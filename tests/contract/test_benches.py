"""The peers of the benchmarks are complete, and apart from the workspace."""

import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "benches" / "peers"


def modes() -> set[str]:
    """The modes that the harness passes to programs."""
    text = "\n".join(path.read_text() for path in (ROOT / "benches" / "harness").glob("*.py"))
    passed = re.findall(r'Operator\(\s*contestant, (?:f?"[^"]+"|\w+), "(\w+)"', text)
    return {
        *passed,
        *re.findall(r'mode: str = "(\w+)"', text),
        *re.findall(r'burst\(count, [^,]+, "(\w+)"', text),
    }


def test_each_peer_has_all_modes() -> None:
    # `burst`, `resync` and `startup` have no branch: a created object is handled.
    found = modes()
    assert {"burst", "daemons", "firehose", "latency", "requeue", "timers"} <= found
    special = found - {"burst", "resync", "startup", "updates"} - {"reads"}  # the peers have no Python
    for suffix, folder in [(".rs", "kube-rs/src"), (".go", "controller-runtime")]:
        text = "\n".join(path.read_text() for path in (PEERS / folder).glob(f"*{suffix}"))
        assert {mode for mode in special if f'"{mode}"' not in text} == set(), folder


def test_the_workspace_does_not_get_the_dependencies_of_the_peers() -> None:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    assert not [member for member in workspace["members"] if member.startswith("benches")]
    peer = tomllib.loads((PEERS / "kube-rs" / "Cargo.toml").read_text())
    assert peer["workspace"] == {}
    locked = tomllib.loads((PEERS / "kube-rs" / "Cargo.lock").read_text())["package"]
    assert "kube" in {package["name"] for package in locked}
    ours = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    assert "kube-rs-peer" not in {package["name"] for package in ours}
    assert (PEERS / "controller-runtime" / "go.sum").stat().st_size
