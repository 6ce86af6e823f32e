"""The address of the explanation of an error, in the last line of a failed command."""

import pathlib
import re
import tomllib

import pytest
from kopf._cli import error_report, message_addresses
from kopf._objects.credentials import LoginError
from kopf._runtime.engine_failures import to_exception
from kopf._runtime.loaders import preload

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/messages.md").read_text()
PUBLIC = ["Repository, https://example.com/kopf-rs", "Documentation, https://kopf.example/docs/"]
PLACEHOLDER = ["Homepage, https://kopf.example", "Documentation, https://example.com/kopf-rs/docs"]
LINE = "See https://kopf.example/docs/reference/messages.html#"
# Rows of the messages at the start that end no command: warnings, and messages of pip and of `kopf check`.
WARNINGS = {
    "unresolved-resources",
    "ambiguous-resources",
    "cannot-read-resources",
    "misspelled-resource",
    "no-handlers",
    "unknown-argument",
    "missing-kwargs",
    "duplicate-handler-ids",
    "unknown-setting",
    "no-matching-namespace",
    "own-certificates",
    "replaced-status-path",
    "two-distributions",
    "unsupported-wheel",
}


def rows(text):
    """The messages of the rows by their anchors."""
    found = re.findall(r'^\| <a id="([\w-]+)"></a>(.*?) \| ', text, re.M)
    return {anchor: tuple(re.findall(r"`([^`]+)`", cell)) for anchor, cell in found}


def test_the_page_has_the_messages_of_each_anchor():
    on_page = rows(PAGE)
    assert {anchor: on_page[anchor] for anchor in message_addresses.ANCHORS} == message_addresses.ANCHORS


def test_each_error_at_the_start_is_in_the_table():
    at_start = set(rows(PAGE.partition("\n## At the start\n")[2].partition("\n## ")[0]))
    assert len(at_start) > 30 and at_start >= WARNINGS
    assert set(message_addresses.ANCHORS) == at_start - WARNINGS


@pytest.mark.parametrize(
    ("message", "anchor"),
    [
        ("Ran out of valid credentials. No login handler has returned any.", "no-credentials"),
        (
            "Ran out of valid credentials. The API server https://h rejects the credentials from k (401 "
            "Unauthorized): they are wrong or have expired.",
            "credentials-rejected",
        ),
        (
            "The cluster cannot be found: contexts[c].cluster of f refers to 'a', which is in no kubeconfig.",
            "incomplete-kubeconfig",
        ),
        ("The startup handler 'f' failed for good: E: Cannot reach db.", "startup-handler-failed"),
        ("The startup handlers 'f', 'g' failed for good: E: x; E: y.", "startup-handler-failed"),
        ("Cannot load a.py: E: x", "cannot-load-file"),
        ("Cannot load a.py: it uses relative imports, and a file has no package.", "relative-imports"),
        (
            "Cannot load a.py: TypeError: @kopf.on.create needs arguments: @kopf.on.",
            "decorator-without-parentheses",
        ),
        ("Cannot load a.py: ModuleNotFoundError: No module named 'kopf._core.x'", "private-module"),
        ("There is no file 'a.py'.", "no-such-file"),
        ("Something else. Cannot reach it.", None),
    ],
)
def test_special_messages_precede_general_ones(message, anchor):
    assert message_addresses.find_anchor(message) == anchor


@pytest.mark.parametrize("json", [False, True], ids=["text", "json"])
def test_the_last_line_is_the_address(capsys, caplog, json):
    error = LoginError("Ran out of valid credentials. None.")
    assert error_report.report(error, json=json, urls=PUBLIC) == 1
    printed = caplog.messages[0] if json else capsys.readouterr().err
    assert printed.splitlines()[-1] == f"{LINE}no-credentials"


@pytest.mark.parametrize("urls", [PLACEHOLDER, []], ids=["placeholder", "none"])
def test_there_is_no_such_line_without_a_public_documentation(capsys, urls):
    error_report.report(LoginError("Ran out of valid credentials. None."), urls=urls)
    assert capsys.readouterr().err == "Error: Ran out of valid credentials. None.\n"


def test_errors_of_loading_and_of_the_engine_have_an_address(capsys, tmp_path):
    (tmp_path / "wrong.py").write_text("import kopf\n\n\n@kopf.on.create\ndef f(**_): ...\n")
    with pytest.raises(TypeError) as caught:
        preload([str(tmp_path / "wrong.py")], [])
    error_report.report(caught.value, urls=PUBLIC)
    assert capsys.readouterr().err.splitlines()[-1] == f"{LINE}decorator-without-parentheses"
    error_report.report(to_exception(("unreachable", "raw", "Cannot reach https://h: no.")), urls=PUBLIC)
    assert capsys.readouterr().err.splitlines()[-1] == f"{LINE}cannot-reach-server"


def test_other_exceptions_have_none(capsys):
    error_report.report(ValueError("Cannot reach the database"), urls=PUBLIC)
    assert "See " not in capsys.readouterr().err


def test_the_pages_are_those_of_the_site_or_of_the_repository():
    page = message_addresses.page_address("https://h/o/kopf-rs/blob/main/docs")
    assert page == "https://h/o/kopf-rs/blob/main/docs/reference/messages.md"
    assert message_addresses.page_address("https://h/d") == "https://h/d/reference/messages.html"


def test_the_installed_metadata_are_those_of_the_project():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert sorted(message_addresses.project_urls()) == sorted(f"{key}, {url}" for key, url in urls.items())
