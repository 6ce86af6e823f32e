"""The recipes: their YAML is valid, they link onwards, and the index has all of them. The messages exist."""

import json
import pathlib
import re

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs/how-to").glob("*.md"))
# Messages of Python, of pip and of HTTP.
OF_OTHERS = (
    "No module named",
    "got an unexpected keyword argument",
    "is not a supported wheel",
    "cannot import name",
    "403",
)


def test_the_index_has_all_pages():
    index = (ROOT / "docs/index.md").read_text()
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", index))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert len(pages) > 60
    assert pages - linked == {"index.md"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_manifests_of_recipes_are_valid(path):
    page = path.read_text()
    for text in re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S):
        assert all(isinstance(body, dict) for body in yaml.safe_load_all(text))
    if "```console" in page:  # then they are lines of logs, for the tests that follow the commands
        return
    for text in re.findall(r"^```text\n(.*?)^```", page, re.M | re.S):
        if text.startswith("{"):
            json.loads(text)
        else:
            compile(text, path.name, "exec")


def test_the_messages_of_the_page_are_those_of_the_code():
    page = (ROOT / "docs/reference/messages.md").read_text()
    sources = [*ROOT.glob("python/kopf/**/*.py"), *ROOT.glob("rust/*/src/**/*.rs")]
    code = "\n".join(path.read_text() for path in sources)
    assert len(sources) > 200
    rows = [row for row in page.splitlines() if row.startswith("| <a ")]
    assert len(rows) > 50
    messages = [text for row in rows for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    assert len(messages) > len(rows)
    for message in messages:
        if message.removeprefix("... ").startswith(OF_OTHERS):
            continue
        part = max(message.split("..."), key=len).strip(" :'")
        assert part.rpartition(".")[2] in code if part.startswith("kopf.") else part in code, message


def test_each_row_of_the_messages_has_an_anchor():
    page = (ROOT / "docs/reference/messages.md").read_text()
    tables = re.findall(r"^\|(?: -+ |-+)\|.*\n((?:\|.*\n)+)", page, re.M)
    rows = [row for table in tables for row in table.splitlines()]
    anchors = [re.match(r'\| <a id="([a-z0-9]+(?:-[a-z0-9]+)*)"></a>`', row) for row in rows]
    assert len(tables) == 4
    assert [row for row, anchor in zip(rows, anchors, strict=True) if anchor is None] == []
    names = [anchor[1] for anchor in anchors if anchor is not None]
    headings = [re.sub(r"\W+", "-", text.lower()) for text in re.findall(r"^#+ (.+)$", page, re.M)]
    assert len(set(names)) == len(names) > 50
    assert set(names).isdisjoint(headings)
