"""The pages about testing: no task is without a page, and the recipes for CI run the tests.

`tests/installed/test_pages.py` follows the pages in an empty environment.
"""

import inspect
import re

import pytest
import yaml
from kopf.testing import Cluster

from tests.docs.following import ROOT, Reader, files_of

pytestmark = pytest.mark.timeout(900)
FIRST = ROOT / "docs/testing.md"
PAGES = sorted((ROOT / "docs/testing").glob("*.md"))


@pytest.fixture
def reader(tmp_path):
    """A reader who has the files of the first page."""
    files_of([FIRST.read_text()], tmp_path)
    reader = Reader(tmp_path, None)
    yield reader
    reader.close()


def test_the_first_page_lists_all_pages():
    linked = re.findall(r"^\| [^|]+ \| \[[^]]+\]\((\S+)\) \|$", FIRST.read_text(), re.M)
    assert len(linked) == 10
    assert {f"testing/{path.name}" for path in PAGES} == {*linked, "testing/kit.md"} - {"how-to/ci.md"}


def test_the_timeouts_of_the_kit_are_those_of_its_methods():
    page = (ROOT / "docs/testing/kit.md").read_text()
    documented = re.findall(r"^\| `(\w+)\(.*?\btimeout=(\d+)\)`", page, re.M)
    assert {name for name, _ in documented} == {"wait_for", "wait_until_gone", "advance"}
    for name, timeout in documented:
        assert inspect.signature(getattr(Cluster, name)).parameters["timeout"].default == int(timeout), name


def test_the_recipes_for_ci_run_the_tests(reader):
    """The steps that call pytest; the others install programs, or are for other clusters."""
    page = (ROOT / "docs/how-to/ci.md").read_text()
    commands = []
    for text in re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S):
        for job in [yaml.safe_load(text).get("tests"), *yaml.safe_load(text).get("jobs", {}).values()]:
            if job is not None:
                steps = [step["run"] for step in job.get("steps", []) if "run" in step] + job.get(
                    "script", []
                )
                assert steps[-1].startswith(("pytest ", "KUBEBUILDER_ASSETS=")), steps
                commands.append(steps[-1])
    assert len(commands) == 3
    code, output = reader.call("kopf check --offline handlers.py")
    assert code == 0, output
    for command in commands:
        if command.startswith("pytest "):
            code, output = reader.call(command.replace("-n auto", "-n 2"))
            assert code == 0 and " 2 passed" in output, output
