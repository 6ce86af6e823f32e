"""The page of supported versions agrees with the metadata, the other pages and the workflows."""

import pathlib
import re
import tomllib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "versions.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {path.stem: path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")}


def rows(section: str) -> list[list[str]]:
    """The cells of the table in a section, without its head."""
    [text] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.M)
    ]
    assert len(found) > 3, section
    return found[2:]


def supported(section: str) -> list[list[str]]:
    return [row for row in rows(section) if row[1] == "supported"]


PYTHONS = [row[0] for row in supported("Python")]


def as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_the_metadata_name_the_supported_pythons():
    classifiers = PROJECT["classifiers"]
    found = [it.removeprefix("Programming Language :: Python :: ") for it in classifiers]
    assert [it for it in found if re.fullmatch(r"3\.\d+", it)] == PYTHONS
    assert sorted(PYTHONS, key=as_numbers) == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_the_metadata_name_the_supported_systems():
    systems = {row[0].split()[0] for row in supported("Operating systems")}
    classifiers = {"Linux": "Operating System :: POSIX :: Linux", "macOS": "Operating System :: MacOS"}
    found = {it for it in PROJECT["classifiers"] if it.startswith("Operating System")}
    assert found == {classifiers[system] for system in systems}


def test_the_readme_names_the_supported_versions():
    text = " ".join((ROOT / "README.md").read_text().split())
    kubernetes = " and ".join(row[0] for row in supported("Kubernetes"))
    assert f"Tested with Python {PYTHONS[0]} to {PYTHONS[-1]} and Kubernetes {kubernetes}" in text
    assert "not affiliated with the authors of Kopf" in text


def test_other_pages_name_only_the_oldest_python_and_refer_to_the_table():
    pages = {name: (ROOT / name).read_text() for name in ("README.md", "docs/install.md", "CONTRIBUTING.md")}
    for name, text in pages.items():
        assert re.findall(r"Python (3\.\d+) or newer", text)[:1] == [PYTHONS[0]], name
    assert "reference/versions.md" in pages["README.md"]
    assert "reference/versions.md" in pages["docs/install.md"]
    assert re.findall(r"tests? .*\b3\.1[2-9]", pages["docs/install.md"]) == []


def test_the_release_workflow_tests_the_other_pythons():
    jobs = yaml.safe_load(WORKFLOWS["wheels"])["jobs"]
    tested = jobs["pythons"]["strategy"]["matrix"]["python"]
    listed = [row[0] for row in rows("Python")]
    assert [listed[0], *tested] == listed


def test_the_release_workflow_builds_the_listed_wheels():
    jobs = yaml.safe_load(WORKFLOWS["wheels"])["jobs"]
    built = set()
    for it in jobs["wheel"]["strategy"]["matrix"]["include"]:
        kind = it["manylinux"] if it["manylinux"].startswith("musl") else f"manylinux_{it['manylinux']}"
        built.add(f"`{kind}_{it['target'].split('-')[0]}`")
    assert len(built) == 4
    assert {row[2] for row in supported("Operating systems")} == built
    apple = {it["target"] for it in jobs["macos"]["strategy"]["matrix"]["include"]}
    assert apple == {"aarch64-apple-darwin", "x86_64-apple-darwin"}
    named = [row[0] for row in rows("Operating systems") if row[0].startswith("macOS")]
    [target] = re.findall(r'MACOSX_DEPLOYMENT_TARGET: "(\d+)\.', WORKFLOWS["wheels"])
    assert [f"macOS {target} or newer on ARM and x86-64"] == named


def test_commands_and_workflows_of_the_tables_exist():
    named = set(re.findall(r"`([a-z]+)\.yml`", PAGE))
    assert "wheels" in named
    assert named <= set(WORKFLOWS)
    assert (ROOT / ".ci" / "run").exists()


def test_the_recorded_server_is_a_supported_one():
    versions = [row[0] for row in supported("Kubernetes")]
    text = (ROOT / "docs" / "testing" / "real-clusters.md").read_text()
    assert re.findall(r"as kube-apiserver (1\.\d+) does", text + PAGE) == [versions[-1]] * 2


def test_pull_requests_are_tested_with_the_versions_of_the_tables():
    workflow = yaml.safe_load(WORKFLOWS["ci"])
    installed = [
        step["with"]["python-version"]
        for step in workflow["jobs"]["checks"]["steps"]
        if "setup-python" in step.get("uses", "")
    ]
    assert installed == [PYTHONS[-1], PYTHONS[0]], "the last one is the default"
    assert [f"{row[0]}.x" for row in supported("Kubernetes")] == [workflow["env"]["KUBERNETES"]]
