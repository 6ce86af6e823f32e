"""Nothing is compiled twice: the package of the tests and the Rust tests use the same crates."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def crates(*options):
    """The crates with their versions and features, for these options of cargo."""
    command = ["cargo", "tree", "--locked", "--prefix=none", "--no-dedupe", "--format={p} {f}", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [line.replace(" (*)", "").replace(" (proc-macro)", "") for line in done.stdout.splitlines()]
    return {line.rstrip() for line in lines if line}


@pytest.mark.skipif(shutil.which("cargo") is None, reason="there is no cargo")
def test_the_package_and_the_rust_tests_enable_the_same_features():
    """Else cargo compiles a crate for each, and all crates that depend on it.

    If only the tests need a feature, the feature `testing` of kopf-py enables it, too.
    """
    package = crates("-p=kopf-py", "--features=kopf-py/testing", "--edges=normal,build")
    tests = crates("--workspace", "--features=kopf-py/testing", "--edges=normal,build,dev")
    assert sorted(package - tests) == []
