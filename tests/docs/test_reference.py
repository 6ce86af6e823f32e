"""The pages that are made of the code are as the code is now, and leave nothing out."""

import inspect
import pathlib
import subprocess
import sys

import kopf
import kopf.testing

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import reference_names  # noqa: E402


def test_pages_are_as_the_code_is():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/reference.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_all_settings_are_on_the_page_with_explanations():
    page = (ROOT / "docs/settings.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `settings.")]
    settings = kopf.OperatorSettings()
    names = {
        f"settings.{group}.{name}"
        for group in vars(settings)
        for name in vars(getattr(settings, group))
        if not name.startswith("_")
    }
    assert len(names) > 40
    assert names <= {row.split("`")[1] for row in rows}
    assert [row for row in rows if row.endswith("|  |")] == []


def test_all_commands_are_on_the_page_with_explanations():
    from kopf import cli

    page = (ROOT / "docs/commands.md").read_text()
    options = [option for command in cli.main.commands.values() for option in command.params]
    assert len(options) > 40
    assert all(spelling in page for option in options for spelling in option.opts if spelling[0] == "-")
    rows = [line for line in page.splitlines() if line.startswith("| `-")]
    assert [row for row in rows if row.endswith("|  |")] == []


def test_all_options_of_decorators_are_on_the_page_with_explanations():
    page = (ROOT / "docs/reference/decorators.md").read_text()
    used = {
        option
        for function in reference_names.decorators().values()
        for option in reference_names.options_of(function)
    }
    assert len(used) > 30
    assert used == set(reference_names.OPTIONS)
    assert {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")} == used
    assert page.count("\n## @kopf.") == len(reference_names.decorators()) > 15


def test_all_public_names_are_on_a_page_with_explanations():
    pages = [(ROOT / "docs/reference" / name).read_text() for name in ("api.md", "decorators.md")]
    heads = {
        line.split()[1].lstrip("@")
        for page in pages
        for line in page.splitlines()
        if line[:3] in ("###", "## ")
    }
    names = {f"kopf.{name}" for name in kopf.__all__} | {
        f"kopf.testing.{name}" for name in kopf.testing.__all__
    }
    assert len(names) > 100
    assert names - heads == {"kopf.on", "kopf.lifecycles"}, "modules have no sections"
    bare = [
        name
        for name, value in reference_names.public_names().items()
        if (inspect.isclass(value) or inspect.isroutine(value)) and not value.__doc__
    ]
    assert bare == []
