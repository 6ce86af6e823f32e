"""Every file starts with its documentation, and every subprocess of a test has a time limit."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rust_files() -> list[pathlib.Path]:
    return sorted(path for path in (ROOT / "rust").rglob("*.rs") if "target" not in path.parts)


def python_files() -> list[pathlib.Path]:
    folders = ["python", "examples", "scripts", "tests"]
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_every_rust_file_opens_with_its_doc():
    files = rust_files()
    assert len(files) > 30
    bare = [path.relative_to(ROOT).as_posix() for path in files if not path.read_text().startswith("//!")]
    assert bare == []


def test_every_python_module_has_a_docstring():
    files = python_files()
    assert len(files) > 50
    bare = [
        path.relative_to(ROOT).as_posix()
        for path in files
        if ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert bare == []


def test_every_subprocess_of_a_test_has_a_time_limit():
    files = sorted((ROOT / "tests").rglob("*.py"))
    calls = [
        (f"{path.relative_to(ROOT)}:{node.lineno}", {keyword.arg for keyword in node.keywords})
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("subprocess.run", "subprocess.check_output", "subprocess.check_call")
    ]
    assert len(calls) > 20
    assert [place for place, keywords in calls if "timeout" not in keywords] == []


def test_links_between_the_documents_lead_somewhere():
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    assert len(documents) > 8
    links = [
        (path, link)
        for path in documents
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text())
    ]
    assert len(links) > 10
    broken = [
        f"{path.relative_to(ROOT)}: {link}" for path, link in links if not (path.parent / link).exists()
    ]
    assert broken == []
