"""The wheel, installed into an empty environment."""

import json
import os
import pathlib
import re
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The extension is most of it; it grows with features, and must not grow unnoticed.
LIMIT = 12 * 2**20
DEPENDENCIES = {"click", "pyyaml"}


def test_an_empty_environment_gets_few_packages(installed):
    script = "from importlib.metadata import distributions as d; print(*(x.name.lower() for x in d()))"
    names = set(installed.run("-c", script).stdout.split())
    assert names == {"kopf-rs", *DEPENDENCIES}
    done = installed.run("-m", "kopf", "run", "--help")
    assert "--all-namespaces" in done.stdout, done.stderr
    assert (installed.folder / "bin" / "kopf").exists()


def test_the_oldest_allowed_click_is_enough(installed, tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [oldest] = [one.removeprefix("click>=") for one in project["dependencies"] if one.startswith("click")]
    installed.pip("install", "--no-deps", "--target", str(tmp_path), f"click=={oldest}")
    call = f"""import sys
sys.path.insert(0, {str(tmp_path)!r})
from importlib.metadata import version
print(version("click"))
from kopf._cli.commands import main
main(["run", "--help"])
"""
    done = installed.run("-c", call)
    assert done.stdout.splitlines()[0] == f"{oldest}.0", done.stderr
    assert "--all-namespaces" in done.stdout, done.stderr


def test_the_wheel_is_small_and_has_no_functions_for_tests(optimised_wheel, environment):
    assert os.path.getsize(optimised_wheel) < LIMIT
    environment.pip("install", optimised_wheel)
    done = environment.run("-c", "import kopf._kopf as k; print(*dir(k))")
    assert "Engine" in done.stdout.split(), done.stderr
    assert "inject" not in done.stdout


def test_the_wheel_has_what_belongs_to_it(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "kopf/py.typed" in names
    assert "kopf/THIRD-PARTY.txt" in names, "the licences of what is linked into the extension"
    assert "kopf/_kopf.pyi" in names
    assert len([name for name in names if name.endswith((".so", ".pyd"))]) == 1
    assert not [name for name in names if name.split("/")[0] not in ("kopf",) and ".dist-info/" not in name]


def test_the_wheel_lists_what_is_linked_into_it(wheel):
    """The crates with licences are in the SBOM, which also has those of builds and of other platforms."""
    with zipfile.ZipFile(wheel) as file:
        [name] = [name for name in file.namelist() if ".dist-info/sboms/" in name]
        components = json.loads(file.read(name))["components"]
        licences = file.read("kopf/THIRD-PARTY.txt").decode()
        metadata = file.read(name.partition("/")[0] + "/METADATA").decode()
    listed = set(re.findall(r"^  (\S+) (\S+): ", licences, re.M))
    assert len(listed) > 50
    assert listed <= {(component["name"], component["version"]) for component in components}
    assert "Project-URL: Repository, " in metadata


def test_any_python_from_3_11_on_can_use_the_wheel(wheel):
    assert "-cp311-abi3-" in wheel


def test_the_command_is_what_the_module_is(installed):
    light = installed.run("-m", "kopf", "--version")
    heavy = installed.run("-c", "import sys; sys.argv[1:] = ['--version']; from kopf.cli import main; main()")
    assert light.stdout == heavy.stdout != ""
    assert light.returncode == heavy.returncode == 0
    entry = (installed.folder / "bin" / "kopf").read_text()
    assert "from kopf.__main__ import main" in entry


def test_starting_loads_only_what_is_asked_for(installed):
    script = (
        "import sys\nsys.argv[1:] = [{!r}]\ntry:\n from kopf.__main__ import main; main()\n"
        "finally:\n print(*sys.modules)"
    )
    loaded = {
        option: set(installed.run("-c", script.format(option)).stdout.split())
        for option in ("--version", "--help")
    }
    assert not loaded["--version"] & {"click", "typing", "enum", "kopf._kopf"}
    assert "click" in loaded["--help"]
    assert not loaded["--help"] & {"asyncio", "ssl", "logging", "yaml", "kopf._kopf", "pathlib"}
