"""The page about testing shows the tests of its example as they are."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_example_is_shown_as_it_is():
    page = (ROOT / "docs/testing.md").read_text()
    code = (ROOT / "examples/20-testing/test_example.py").read_text().split('"""', 2)[2].strip()
    blocks = [block.strip() for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)]
    assert len(blocks) == 4
    assert code in blocks
