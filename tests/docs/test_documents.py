"""The contents of the documents are valid: Python blocks compile and run, make targets and files exist."""

import json
import pathlib
import re
import subprocess
import sys
import textwrap
import tomllib

import pytest
from kopf._cli import project_templates

from scripts import address, figures
from tests.support.differences import IN_REFERENCE

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
# There, the blocks are parts of files: see test_followed.py and tests/installed/test_pages.py.
GROWING = (ROOT / "docs" / "tutorial", ROOT / "docs" / "testing")
BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}:{number}")
    for path in DOCUMENTS
    if path.parent not in GROWING
    for number, block in enumerate(BLOCK.findall(path.read_text()))
]


def test_documents_are_seen():
    assert len(DOCUMENTS) > 15
    assert len(BLOCKS) > 5


@pytest.mark.parametrize("block", BLOCKS)
def test_python_in_documents_is_accepted_by_the_framework(block, kopf_python, tmp_path):
    (tmp_path / "block.py").write_text(textwrap.dedent(block))
    done = subprocess.run([kopf_python, "block.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def tasks() -> set[str]:
    found = set(re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(), re.M))
    assert len(found) > 8
    return found


def test_tasks_in_documents_are_in_the_makefile():
    used = {
        (path.name, task)
        for path in DOCUMENTS
        for task in re.findall(r"(?:^    |`|^\$ )make ([a-z-]+)", path.read_text(), re.M)
    }
    assert len(used) > 5
    assert {task for _, task in used} <= tasks()


def test_ci_runs_the_two_commands_of_the_readme():
    text = (ROOT / "README.md").read_text()
    commands = re.findall(r"^\$ (make .*)$", text, re.M)
    assert commands == ["make demo", "make test"]
    assert "scripts/ci.py" in (ROOT / ".ci" / "run").read_text()
    stages = (ROOT / "scripts" / "ci.py").read_text()
    assert re.findall(r'"scripts/console.py", "README.md", "(.*?)"', stages) == commands


def test_readme_shows_the_examples_as_they_are():
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    assert len(blocks) == 2
    for block, name in zip(blocks, ("01-minimal", "15-reconciler"), strict=True):
        _, _, shown = (ROOT / "examples" / name / "example.py").read_text().partition("\n\n")
        assert shown.strip().endswith(block.strip()), name


def run_figures(*args):
    command = [sys.executable, "-m", "scripts.figures", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_the_chart_and_the_tables_have_the_figures_of_the_data():
    done = run_figures("--check")
    assert done.returncode == 0, done.stderr
    figures = re.findall(r">([\d.]+ ms)<", (ROOT / "docs/images/cpu.svg").read_text())
    [shown] = re.findall(r"^!\[(.*?)\]\(\S*docs/images/cpu.svg\)", (ROOT / "README.md").read_text(), re.M)
    assert len(figures) == 2, "of Kopf 1.45 and kopf-rs: `make figures` measures no others by itself"
    assert re.findall(r"[\d.]+ ms", shown) == figures


def test_figures_of_a_run_replace_those_of_the_data(monkeypatch, capsys):
    data = json.loads((ROOT / "docs/figures.json").read_text())
    results = {"W3": {"ours": [{"CPU per object, ms": 0.51}], "reference": [{"CPU per object, ms": 4.0}]}}
    new = figures.measured(data, results, "1 May 2030", "version 9")
    assert figures.charted(new) == ({"Kopf 1.45": 4.0, "kopf-rs": 0.51}, "ms")
    results["W3"]["kube-rs"] = [{"CPU per object, ms": 0.4}]
    with_others = figures.measured(data, results, "1 May 2030", "version 9")
    assert figures.charted(with_others) == figures.charted(new), "a program that is given by hand"
    assert "0.40 ms" in figures.for_page(with_others)
    assert "Measured on 1 May 2030 with version 9." in figures.for_readme(new)
    assert "0.51 ms" in figures.draw(new) and "0.39" not in figures.draw(new)
    assert "| - | - | **0.51 ms** |" in figures.for_page(new)
    assert "not those of the current version" not in figures.for_page(new)
    assert "Outdated" in figures.for_readme(data) or not data["outdated"]


def test_no_page_has_figures_of_performance_outside_of_the_tables():
    """README.md and docs/performance.md have them in generated blocks, the evidence with its date."""
    for name in (
        "README.md",
        "docs/performance.md",
        "docs/migration.md",
        "docs/index.md",
        "docs/reliability.md",
    ):
        text = re.sub(
            r"<!-- figures.*?<!-- end of the figures -->", "", (ROOT / name).read_text(), flags=re.S
        )
        assert re.findall(r"\d(?:\.\d+)? (?:ms|µs|kB)\b|\d times (?:less|faster|more)", text) == [], name
    evidence = (ROOT / "docs/project/evidence.md").read_text()
    measured = (ROOT / "benches/README.md").read_text()
    assert re.search(r"\b\w+ 20\d\d\b", evidence) and re.search(r"Measured on \d+ \w+ 20\d\d", measured)


def test_the_address_of_the_repository_is_replaced_in_one_place(tmp_path, monkeypatch):
    for name in (*address.FILES, "README.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    before = address.current(tmp_path)
    address.replace("https://git.test/me/kopf-rs", tmp_path)
    assert address.current(tmp_path) == "https://git.test/me/kopf-rs"
    readme = (tmp_path / "README.md").read_text()
    assert "](https://git.test/me/kopf-rs/blob/main/docs/quickstart.md)" in readme
    assert "](https://git.test/me/kopf-rs/raw/main/docs/images/cpu.svg)" in readme
    assert re.findall(r"\]\((?!https://|#)", readme) == []
    known = {path.relative_to(ROOT) for path in ROOT.glob("*.toml") if before in path.read_text()}
    assert known == {pathlib.Path(name) for name in address.FILES}, "there are other places"
    assert not any(before in (tmp_path / name).read_text() for name in address.FILES)
    # The documentation is the folder of the repository, or a site; errors of commands refer to it.
    assert (
        'Documentation = "https://git.test/me/kopf-rs/blob/main/docs"'
        in (tmp_path / "pyproject.toml").read_text()
    )
    address.replace("https://git.test/me/kopf-rs", tmp_path, documentation="https://site.test/docs")
    assert 'Documentation = "https://site.test/docs"' in (tmp_path / "pyproject.toml").read_text()


def test_the_distribution_is_not_installed_from_a_registry():
    """The name is not reserved yet: each page that shows the command has the condition next to it.

    The project of `kopf init` installs only from local wheels.
    """
    seen = 0
    for path in DOCUMENTS:
        for paragraph in path.read_text().split("\n\n"):
            if re.search(r"(?:pip|uv) (?:install|add) (?:-\S+ )*kopf-rs", paragraph):
                seen += 1
                assert re.search(r"releas", paragraph), f"{path.name}: {paragraph}"
    assert seen > 0
    for name, template in project_templates.FILES.items():
        for installation in re.findall(r"^.*(?:pip|uv) (?:install|add) .*kopf-rs.*$", template, re.M):
            assert "--no-index" in installation, f"{name}: {installation}"
    project = tomllib.loads(project_templates.FILES["pyproject.toml"])["project"]
    assert "optional-dependencies" not in project
    declared = project["dependencies"]
    assert not [item for item in declared if "kopf" in item and "@ file:" not in item]


def test_files_in_documents_exist():
    """In the tables of files, names without a folder are in the folder of the name before."""
    seen = 0
    for path in DOCUMENTS:
        if path.parent in GROWING:  # these files are the reader's
            continue
        for name in re.findall(
            r"`((?:rust|python|tests|docs|examples|scripts)/[^`\s*<]+)`", path.read_text()
        ):
            seen += 1
            file = name.split("::")[0]  # there, a test is named after its file; its own test looks for it
            assert (ROOT / file).exists(), f"{path.name} speaks of {name}"
    assert seen > 20


def test_the_versions_of_packages_are_those_of_the_requirements():
    page = (ROOT / "docs/reference/versions.md").read_text()
    stated = dict(re.findall(r"^\| `([\w-]+)` \| ([\d.]+) or newer \|", page, re.M))
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    tested = (ROOT / "requirements/operators.in").read_text().splitlines()
    known = dict(line.split(">=") for line in [*required, *tested] if ">=" in line)
    assert {name: known.get(name) for name in stated} == stated
    assert {line.split(">=")[0] for line in required} <= stated.keys()
    assert len(stated) > len(required)


def test_differences_are_in_the_documents():
    assert len(IN_REFERENCE) >= 3
    text = (ROOT / "docs/compatibility.md").read_text()
    assert "## Deliberate differences" in text
    assert len(re.findall(r"^\| .* \| .* \| .* \|$", text.split("## Deliberate differences")[1], re.M)) > len(
        IN_REFERENCE
    )


def test_commands_of_kopf_in_documents_have_known_options(kopf_python):
    text = subprocess.run(
        [kopf_python, "-m", "kopf", "run", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    options = {
        option
        for path in DOCUMENTS
        for line in re.findall(r"^(?:\$ | *)kopf run (.*)$", path.read_text(), re.M)
        for option in re.findall(r"(?<!\S)(-{1,2}[A-Za-z-]+)", line)
    }
    assert options
    missing = {option for option in options if option not in text}
    assert not missing
