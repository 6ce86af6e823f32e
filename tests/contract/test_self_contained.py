"""A clone is complete: nothing in it refers to a file outside of it."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

RELATIVE = re.compile(r"(?<![\w./])(?:\.\./)+[\w.-]+")
# `cd folder && ...` in shell and make.
CHANGED_FOLDER = re.compile(r"\bcd ([\w./-]+) &&")
# The folder that contains the checkout, or a place on one machine.
ABOVE = re.compile(r"\bROOT[.]parent\b|(?<![\w.])/work/[\w.-]+")
ACCEPTED = {
    (".ci/run", "../shared"),  # an optional control plane; without it, that of KUBEBUILDER_ASSETS
    ("CHANGELOG.md", "../x"),  # an example of a path
}


def tracked() -> list[str]:
    """The files of the repository."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def references(name: str, text: str) -> list[str]:
    """The places outside of the repository that a file names."""
    found = []
    is_in_root = name.startswith(".ci/") or name.endswith(".sh")  # they change to the root first
    for line in text.splitlines():
        changed = CHANGED_FOLDER.search(line)
        folder = ROOT / changed[1] if changed else ROOT if is_in_root else (ROOT / name).parent
        for match in RELATIVE.finditer(line):
            if not pathlib.Path(os.path.normpath(folder / match[0])).is_relative_to(ROOT):
                found.append(match[0])
        found += ABOVE.findall(line)
    return found


def test_nothing_refers_to_a_file_outside_of_the_repository():
    names = tracked()
    assert len(names) > 500
    outside = set()
    for name in names:
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        outside |= {(name, reference) for reference in references(name, text)}
    assert outside == ACCEPTED
