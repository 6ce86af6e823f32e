"""The pages for newcomers, followed with the wheel in an empty environment."""

import os
import pathlib
import re
import shutil

import pytest
from kopf.testing import Cluster

from tests.docs.following import ENVIRONMENT, NO_COMPILATION, Reader, find_kubectl

ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(900)
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))


def checkout(folder, wheel):
    """A checkout after `make wheel`."""
    (folder / "dist").mkdir()
    (folder / "dist" / pathlib.Path(wheel).name).symlink_to(wheel)
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


@pytest.fixture
def reader(tmp_path, wheel, pip):
    """A reader with an empty environment in a checkout."""
    reader = Reader(checkout(tmp_path, wheel), find_kubectl(), pip=pip)
    yield reader
    reader.close()


@pytest.fixture(scope="session")
def followed(once, wheel, pip):
    """An environment in which the commands of "Install" were followed."""

    def install(folder):
        reader = Reader(checkout(folder, wheel), None, pip=pip)
        for name in NO_COMPILATION:
            del reader.env[name]  # many readers import the package
        assert reader.follow(section("README.md", "Install")) == 2

    return once("followed", install) / ENVIRONMENT


@pytest.fixture
def prepared(tmp_path, wheel, pip, followed):
    """A reader who has followed "Install"."""
    kubectl = find_kubectl()
    if kubectl is None:
        pytest.skip("there is no kubectl")
    reader = Reader(checkout(tmp_path, wheel), kubectl, pip=pip, start=followed)
    yield reader
    reader.close()


def section(page, head):
    """A section of a page, without its head."""
    found = (ROOT / page).read_text().partition(f"\n## {head}\n")[2].partition("\n## ")[0]
    assert found, head
    return found


def test_the_readme_from_the_installation_to_the_first_operator(reader):
    assert reader.call("kopf --version")[0] != 0, "the environment is empty"
    assert reader.follow(section("README.md", "Install")) == 2
    assert reader.follow(section("README.md", "A first operator")) == 1


def test_the_readme_for_those_who_have_kopf(reader):
    code, output = reader.call("pip install --quiet kopf==1.45.2")
    assert code == 0, output
    assert "1.45.2" in reader.call("kopf --version")[1]
    assert reader.follow(section("README.md", "Coming from Kopf?")) == 2
    assert "1.45.2" not in reader.call("kopf --version")[1]
    assert reader.follow(section("README.md", "A first operator")) == 1


def test_the_quickstart_after_the_installation(prepared):
    assert prepared.follow((ROOT / "docs/quickstart.md").read_text()) >= 5


def test_type_checkers_find_typos(prepared):
    assert prepared.follow((ROOT / "docs/how-to/type-checking.md").read_text()) == 2


def test_the_testing_pages_after_the_installation(prepared):
    """In one folder: the tasks continue with the files of the first page, and install their packages."""
    names = re.findall(r"\]\((testing/[\w-]+\.md)\) \|$", (ROOT / "docs/testing.md").read_text(), re.M)
    assert len(names) == 9
    for name in ["testing.md", *names, "testing/kit.md"]:
        if name != "testing/real-clusters.md" or os.environ.get("KUBEBUILDER_ASSETS"):
            assert prepared.follow((ROOT / "docs" / name).read_text()) >= 1, name


def test_the_tutorial_after_the_installation(prepared):
    pages = sorted((ROOT / "docs/tutorial").glob("[0-9]-*.md"))
    for path in [ROOT / "docs/tutorial/index.md", *pages]:
        assert prepared.follow(path.read_text()) >= 1, path.name


def test_the_page_of_the_installation(prepared):
    for head in ("Moving from Kopf", "If both are installed"):
        assert prepared.follow(section("docs/install.md", head)) == 2


def test_the_page_of_the_development(prepared):
    assert prepared.follow((ROOT / "docs/dev.md").read_text()) == 4


@pytest.mark.parametrize(
    "page, commands",
    [
        ("how-to/check-a-cluster", 1),
        ("how-to/finalizers", 7),
        ("how-to/handler-not-called", 1),
        ("how-to/helm-and-kustomize", 2),
        ("how-to/object-states", 6),
        pytest.param(
            "probes", 3, marks=pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
        ),
    ],
)
def test_pages_with_commands(prepared, page, commands):
    with Cluster(controllers=True) as cluster:
        prepared.env["KUBECONFIG"] = str(cluster.kubeconfig)
        assert prepared.follow((ROOT / f"docs/{page}.md").read_text()) >= commands
        prepared.close()  # before its cluster


@pytest.mark.parametrize(
    "page, example", [("state-and-finalizers", "01-minimal"), ("deployment", "30-deployment")]
)
def test_pages_about_the_object_of_an_example(prepared, page, example):
    with Cluster() as cluster:
        prepared.env["KUBECONFIG"] = str(cluster.kubeconfig)
        prepared.run(f"kubectl apply -f examples/{example}/crd.yaml", [])
        prepared.run(f"kubectl apply -f examples/{example}/obj.yaml", [])
        assert prepared.follow((ROOT / f"docs/{page}.md").read_text()) == 1


def test_the_commands_of_replicas(prepared):
    source = ROOT / "examples/01-minimal"
    (prepared.folder / "handlers.py").write_text((source / "example.py").read_text())
    with Cluster() as cluster:
        prepared.env["KUBECONFIG"] = str(cluster.kubeconfig)
        prepared.run("kubectl create namespace cache-system", [])
        assert prepared.follow((ROOT / "docs/how-to/replicas.md").read_text()) == 2
        prepared.close()  # before its cluster


def test_the_command_that_prints_the_manifests_of_a_deployment(prepared):
    [command] = re.findall(r"`(kopf manifests --home [^`]+)`", (ROOT / "docs/deployment.md").read_text())
    with Cluster() as cluster:
        prepared.env["KUBECONFIG"] = str(cluster.kubeconfig)
        prepared.run("kubectl apply -f examples/30-deployment/crd.yaml", [])
        code, output = prepared.call(f"cd examples/30-deployment && {command}")
        assert code == 0 and "kind: ServiceAccount" in output, output


def test_the_check_that_manifests_match_the_handlers(prepared):
    page = (ROOT / "docs/deployment.md").read_text()
    [check] = re.findall(r"`(kopf manifests [^`]+ --check=\S+ example\.py)`", page)
    shown = page.partition("For a new handler of pods, it prints:\n\n```diff\n")[2].partition("```")[0]
    operator = prepared.folder / "example.py"
    operator.write_text((ROOT / "examples/30-deployment/example.py").read_text())
    with Cluster() as cluster:
        prepared.env["KUBECONFIG"] = str(cluster.kubeconfig)
        prepared.run("kubectl apply -f examples/30-deployment/crd.yaml", [])
        prepared.run(check.replace("--check=", "--output="), [])
        prepared.run(check, [])
        with operator.open("a") as file:
            file.write("\n\n@kopf.on.event('pods')\ndef watch(**_):\n    pass\n")
        code, output = prepared.call(check)
        assert code == 3, output
        assert [line for line in shown.splitlines() if line not in output.splitlines()] == [], output


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples(prepared, name):
    """The example brings no packages but those that its README installs."""
    page = (ROOT / "examples" / name / "README.md").read_text()
    if name == "40-cache":  # tests/examples/test_cache.py has the rest
        page = page.partition("## What it shows")[0]
    if name == "30-deployment":  # images and pushing are for others
        page = page.partition("Or without an image:")[2]
    if not os.environ.get("KUBEBUILDER_ASSETS"):
        page = page.replace(" --kopf-cluster=assets", "")
    with Cluster(controllers=True) as cluster:
        prepared.env["KUBECONFIG"] = str(cluster.kubeconfig)
        assert prepared.follow(page) >= 3
        prepared.close()  # before its cluster


def test_the_tests_of_an_example_run_in_a_checkout_with_pytest_alone(prepared):
    """The plugins that the tests of this repository need are not installed."""
    [command] = re.findall(r"`(pytest examples/\S+)`", (ROOT / "docs/testing.md").read_text())
    assert prepared.call("pip install --quiet pytest")[0] == 0
    prepared.folder = ROOT
    code, output = prepared.call(f"{command} -p no:cacheprovider")
    assert code == 0 and " passed" in output, output


def test_the_migration_to_kopf_rs(reader):
    code, output = reader.call("pip install --quiet kopf==1.45.2")
    assert code == 0, output
    page = (ROOT / "docs/migration.md").read_text()
    assert reader.follow(page) == 4
