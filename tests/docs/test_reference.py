"""The pages that are made of the code are as the code is now, and leave nothing out."""

import pathlib
import subprocess
import sys

import kopf

ROOT = pathlib.Path(__file__).resolve().parents[2]


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
