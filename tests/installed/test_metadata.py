"""The metadata-only distribution `kopf`: kopf-rs satisfies packages that require `kopf`."""

import pathlib
import re
import tomllib
import zipfile

import pytest

from tests.support.registry import check_registry

ROOT = pathlib.Path(__file__).resolve().parents[2]
ORDERS = [("kopf-rs", "kopf", "operator"), ("kopf", "operator", "kopf-rs"), ("operator", "kopf-rs", "kopf")]
LOOK = """
import importlib.metadata as metadata
import kopf
[path] = kopf.__path__
owners = metadata.packages_distributions()["kopf"]
print(metadata.version("kopf"), sorted(set(owners)), kopf.on.create("x").__name__)
"""


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory, wheel):
    """A folder with all that kopf-rs needs, so that no registry is asked later."""
    import subprocess
    import sys

    folder = tmp_path_factory.mktemp("dependencies")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), "click", "PyYAML"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    if done.returncode:
        check_registry(done.stderr)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def operator_wheel(tmp_path_factory):
    """A package that requires `kopf`, as operators in registries do."""
    path = tmp_path_factory.mktemp("operator") / "somebodys_operator-1.0-py3-none-any.whl"
    folder = "somebodys_operator-1.0.dist-info"
    metadata = "Metadata-Version: 2.1\nName: somebodys-operator\nVersion: 1.0\nRequires-Dist: kopf>=1.38\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("somebodys_operator.py", "import kopf\n")
        archive.writestr(f"{folder}/METADATA", metadata)
        archive.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{folder}/RECORD", "")
    return str(path)


def test_it_contains_no_module_and_no_command(metadata_wheel):
    with zipfile.ZipFile(metadata_wheel) as archive:
        names = archive.namelist()
        [metadata] = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]
    assert {name.split("/")[0] for name in names} == {
        f"{pathlib.Path(metadata_wheel).name.split('-py3')[0]}.dist-info"
    }
    assert not [name for name in names if name.endswith("entry_points.txt")]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(rf"^Version: 1\.45\.2\+rs\.{re.escape(version)}$", metadata, re.M)
    assert re.search(r"^Requires-Dist: kopf-rs$", metadata, re.M)


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_packages_that_require_kopf_are_content(
    environment, wheel, metadata_wheel, operator_wheel, dependencies, order
):
    wheels = {"kopf-rs": wheel, "kopf": metadata_wheel, "operator": operator_wheel}
    folders = [dependencies, *(pathlib.Path(path).parent for path in wheels.values())]
    links = [option for folder in folders for option in ("--find-links", str(folder))]
    for name in order:
        environment.pip("install", "--no-index", *links, wheels[name])
    environment.pip("check")
    done = environment.run("-W", "error", "-c", LOOK)
    version = pathlib.Path(metadata_wheel).name.split("-")[1]
    assert (done.stdout, done.stderr) == (f"{version} ['kopf-rs'] decorator\n", "")

    # Without it, everything of kopf-rs stays.
    environment.pip("uninstall", "-y", "kopf")
    done = environment.run("-W", "error", "-m", "kopf", "--version")
    assert done.stdout.startswith("kopf, version "), done.stderr


def test_older_code_finds_the_distribution(environment, wheel, metadata_wheel, dependencies):
    environment.pip("install", "--no-deps", wheel, metadata_wheel)
    environment.pip("install", "setuptools<81")
    code = "import pkg_resources; print(pkg_resources.get_distribution('kopf').version)"
    done = environment.run("-W", "ignore", "-c", code)
    assert done.stdout.startswith("1.45.2+rs."), done.stderr
