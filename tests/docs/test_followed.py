"""The steps of a documentation page produce the shown output."""

import os
import pathlib
import re
import sys

import pytest
from kopf.testing import Cluster

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from following import ROOT, Reader, blocks_of, console, contains, find_kubectl

pytestmark = pytest.mark.timeout(240)
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))


@pytest.fixture(scope="session")
def kubectl():
    found = find_kubectl()
    if found is None:
        pytest.skip("there is no kubectl")
    return found


@pytest.fixture
def reader(tmp_path, kubectl):
    reader = Reader(tmp_path, kubectl)
    yield reader
    reader.close()


@pytest.fixture
def reader_with_cluster(tmp_path, kubectl):
    """With a cluster at hand, and with the examples of the checkout."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with Cluster(controllers=True) as cluster:
        reader = Reader(tmp_path, kubectl, KUBECONFIG=str(cluster.kubeconfig))
        yield reader
        reader.close()


def test_the_tutorial(reader):
    """All pages in their order, in one folder: each continues with the files and the operator so far."""
    if not os.environ.get("KOPF_OPERATORS_SITE"):
        pytest.skip(
            "the official client library is needed: KOPF_OPERATORS_SITE is not set, run `make operators`"
        )
    index = (ROOT / "docs/tutorial/index.md").read_text()
    names = re.findall(r"^\| \[\d\. .*?\]\((\d-\S+?\.md)\)", index, re.M)
    assert names == sorted(path.name for path in (ROOT / "docs/tutorial").glob("[0-9]-*.md"))
    assert len(names) == 8
    done = [reader.follow((ROOT / "docs/tutorial" / name).read_text()) for name in names]
    assert min(done) >= 1


def test_the_quickstart(reader):
    assert reader.follow((ROOT / "docs/quickstart.md").read_text()) >= 3


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples(reader_with_cluster, name):
    page = (ROOT / "examples" / name / "README.md").read_text()
    if name == "40-cache" and not os.environ.get("KOPF_OPERATORS_SITE"):
        pytest.skip("the official client library is needed: KOPF_OPERATORS_SITE is not set")
    if name == "40-cache":  # tests/examples/test_cache.py has the rest
        page = page.partition("## What it shows")[0]
    if name == "30-deployment":  # images and pushing are for others
        page = page.partition("Or without an image:")[2]
    assert reader_with_cluster.follow(page.replace(" --kopf-cluster=assets", "")) >= 1


@pytest.mark.parametrize("name", ["finalizers"])
def test_recipes_with_commands(reader_with_cluster, name):
    page = (ROOT / "docs/how-to" / f"{name}.md").read_text()
    assert reader_with_cluster.follow(page) >= 1


def test_the_first_operator_of_the_readme(reader_with_cluster):
    """`kopf dev` starts its own server; the folder has the examples."""
    page = (ROOT / "README.md").read_text().partition("## A first operator")[2].partition("\n## ")[0]
    assert reader_with_cluster.follow(page) == 1


def test_the_demo_of_the_readme(reader):
    """CI runs `make demo` in whole; this is its second half, with what is installed."""
    [command] = [
        step
        for step in console.steps_of((ROOT / "README.md").read_text())
        if isinstance(step, console.Command) and step.text == "make demo"
    ]
    reader.env.pop("KUBEBUILDER_ASSETS", None)
    code, output = reader.call(f"python {ROOT}/scripts/demo.py")
    assert code == 0, output
    assert console.difference(command.shown, output.splitlines()) is None


def test_all_pages_with_outputs_are_followed():
    """Here, or with the wheel in an empty environment by tests/installed/test_pages.py."""
    shown = {
        str(path.relative_to(ROOT))
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
        if re.search(r"^```console$", path.read_text(), re.M)
    }
    followed = {
        "README.md",
        "docs/quickstart.md",
        "docs/how-to/finalizers.md",
        "docs/how-to/type-checking.md",
    }
    followed |= {f"docs/tutorial/{path.name}" for path in (ROOT / "docs/tutorial").glob("*.md")}
    followed |= {f"examples/{name}/README.md" for name in EXAMPLES}
    assert len(shown) > 10
    assert shown <= followed


def test_the_tests_of_the_example_run_in_a_checkout(reader):
    page = (ROOT / "docs/testing.md").read_text()
    [command] = re.findall(r"`(pytest examples/\S+)`", page)
    reader.folder = ROOT
    code, output = reader.call(command)
    assert code == 0, output
    assert " passed" in output


def test_what_is_wrong_is_found(reader):
    page = "Write `a.py`:\n\n```python\nprint(5)\n```\n\n```console\n$ pytest --version\npytest...\n```\n"
    assert reader.follow(page) == 1
    assert (reader.folder / "a.py").read_text() == "print(5)\n"
    with pytest.raises(AssertionError, match="The page shows:"):
        reader.follow(page.replace("\npytest...", "\nsomething else"))
    with pytest.raises(AssertionError, match="exit code"):
        reader.follow("    pytest --nonsense\n")
    assert [kind for kind, *_ in blocks_of(page + "\n    kubectl get x\n")] == [
        "python",
        "console",
        "indented",
    ]
    assert contains({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}) and not contains({"a": 1}, {"a": 2})
