"""The pages for newcomers, followed with the wheel in an empty environment."""

import os
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))

from following import Reader, find_kubectl  # noqa: E402

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def reader(tmp_path, wheel, environment):
    """A reader in a checkout after `make wheel`. Without a registry, `environment` skips the test."""
    environment.pip("install", "click")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / pathlib.Path(wheel).name).symlink_to(wheel)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    reader = Reader(tmp_path, find_kubectl(), is_empty=True)
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


def test_the_quickstart_after_the_installation(reader):
    if find_kubectl() is None:
        pytest.skip("there is no kubectl")
    reader.follow(section("README.md", "Install"))
    assert reader.follow((ROOT / "docs/quickstart.md").read_text()) >= 5


def test_type_checkers_find_typos(reader):
    reader.follow(section("README.md", "Install"))
    assert reader.follow((ROOT / "docs/how-to/type-checking.md").read_text()) == 2


def test_the_testing_pages_after_the_installation(reader):
    """In one folder: the tasks continue with the files of the first page, and bring their packages."""
    reader.follow(section("README.md", "Install"))
    names = re.findall(r"\]\((testing/[\w-]+\.md)\) \|$", (ROOT / "docs/testing.md").read_text(), re.M)
    assert len(names) == 9
    for name in ["testing.md", *names, "testing/kit.md"]:
        if name != "testing/real-clusters.md" or os.environ.get("KUBEBUILDER_ASSETS"):
            assert reader.follow((ROOT / "docs" / name).read_text()) >= 1, name


def test_the_tutorial_after_the_installation(reader):
    if find_kubectl() is None:
        pytest.skip("there is no kubectl")
    reader.follow(section("README.md", "Install"))
    pages = sorted((ROOT / "docs/tutorial").glob("[0-9]-*.md"))
    for path in [ROOT / "docs/tutorial/index.md", *pages]:
        assert reader.follow(path.read_text()) >= 1, path.name


def test_the_migration_to_kopf_rs(reader):
    code, output = reader.call("pip install --quiet kopf==1.45.2")
    assert code == 0, output
    page = (ROOT / "docs/migration.md").read_text()
    assert reader.follow(page) == 4
