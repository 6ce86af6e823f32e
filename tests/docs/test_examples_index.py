"""The index of the examples has all of them."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_index_has_all_examples():
    page = (ROOT / "examples/README.md").read_text()
    folders = sorted(path.parent.name for path in (ROOT / "examples").glob("*/README.md"))
    assert len(folders) > 15
    assert re.findall(r"^\| \[(\S+)\]\(\1/README\.md\) \| \S", page, re.M) == folders
