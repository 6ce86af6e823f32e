"""The steps of a documentation page produce the shown output."""

import re

import pytest

from tests.docs.following import ROOT, Reader, blocks_of, console, contains, files_of, find_kubectl

pytestmark = pytest.mark.timeout(900)
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


def tutorial():
    """The pages of the tutorial, in the order of its index."""
    index = (ROOT / "docs/tutorial/index.md").read_text()
    names = re.findall(r"^\| \[\d\. .*?\]\((\d-\S+?\.md)\)", index, re.M)
    assert names == sorted(path.name for path in (ROOT / "docs/tutorial").glob("[0-9]-*.md"))
    assert len(names) == 8
    return [(ROOT / "docs/tutorial" / name).read_text() for name in names]


def test_the_tutorial_builds_the_complete_example(tmp_path):
    files_of(tutorial(), tmp_path)
    built = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    example = ROOT / "examples/40-cache"
    for name in sorted(built):
        assert (tmp_path / name).read_text() == (example / name).read_text(), name
    of_example = {str(path.relative_to(example)) for path in example.rglob("*.*") if path.suffix != ".pyc"}
    assert of_example - built == {
        "README.md",
        "tests/test_children.py",
        "tests/test_operator.py",
        "deploy/overlays/one-namespace/kustomization.yaml",
    }


def test_pages_of_the_tutorial_are_short():
    """There are at most 160 lines of code and manifests, and 90 lines of text, commands and outputs."""
    for page in tutorial():
        code = [text for kind, _, text in blocks_of(page) if kind in ("python", "yaml", "dockerfile")]
        lines = sum(len(text.splitlines()) for text in code)
        assert lines <= 160 and len(page.splitlines()) - lines <= 90, page.splitlines()[0]


def test_the_demo_of_the_readme(reader):
    """CI runs `make demo` in whole; this is its second half, with what is installed."""
    [command] = [
        step
        for step in console.steps_of((ROOT / "README.md").read_text())
        if isinstance(step, console.Command) and step.text == "make demo"
    ]
    reader.env.pop("KUBEBUILDER_ASSETS", None)
    code, output = reader.call(f"cd {ROOT} && python -m scripts.demo")
    assert code == 0, output
    assert console.difference(command.shown, output.splitlines()) is None


def test_all_pages_with_outputs_are_followed():
    """Here, or with the wheel in an empty environment by tests/installed/test_pages.py."""
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    shown = {name for name, text in texts.items() if re.search(r"^```console$", text, re.M)}
    # Commands in other fences would not be followed.
    assert [name for name, text in texts.items() if re.search(r"^```(?:shell|bash|sh)$", text, re.M)] == []
    followed = {
        "README.md",
        "docs/dev.md",
        "docs/quickstart.md",
        "docs/probes.md",
        "docs/how-to/finalizers.md",
        "docs/how-to/check-a-cluster.md",
        "docs/how-to/handler-not-called.md",
        "docs/how-to/object-states.md",
        "docs/how-to/replicas.md",
        "docs/how-to/type-checking.md",
        "docs/migration.md",
    }
    followed |= {f"docs/tutorial/{path.name}" for path in (ROOT / "docs/tutorial").glob("*.md")}
    followed |= {"docs/testing.md"} | {
        f"docs/testing/{path.name}" for path in (ROOT / "docs/testing").glob("*.md")
    }
    followed |= {f"examples/{name}/README.md" for name in EXAMPLES}
    assert len(shown) > 10
    assert shown <= followed


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
