"""`scripts/words.py` finds a word in every place where words occur, and accepts terms of the field."""

import importlib.util
import pathlib
import sys
import types

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts" / "words.py"


@pytest.fixture(scope="module")
def words() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("words", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["words"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# The server told us.", ["told"]),
        ("def tell_all(): ...", ["tell"]),
        ("class TellAll: ...", ["tell"]),
        ("TELL_ALL = 1", ["tell"]),
        ('logger.info("Nobody listens.")', ["nobody"]),
        ("//! It has a socket of\n//! its own.", ["of one's own"]),
        ("/// What was written.", ["what + clause"]),
        ("It retries: what has failed is called again.", ["what + clause"]),
        ("It waits until it is so.", ["is so"]),
        ("Kopf retries the handler.", []),
        ("A hotel, a teller, a bearer token.", []),
        ("## What is a handler?", []),
        ("The queue is so large that it is split.", []),
        ("except ConnectionRefusedError: refused()", []),
        ("kind: CustomResourceDefinition", []),
        ("pip installs the wheel.", []),
    ],
)
def test_words_and_phrases_are_found(words, text, found):
    assert [finding.word for finding in words.check_text("python/kopf/file.py", text)] == found


def test_a_planted_word_is_reported_with_its_place_and_a_suggestion(words, tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# A page\n\nThe watch is listed anew.\n")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "page.md").write_text("anew\n")
    assert words.main(["--root", str(tmp_path)]) == 1
    assert "docs/page.md:3: anew → again" in capsys.readouterr().out
    assert words.main(["--root", str(tmp_path), "--skip", "anew"]) == 0
    assert "0 words to replace in 1 files." in capsys.readouterr().out


def test_names_of_files_are_checked(words):
    assert [str(finding) for finding in words.check_text("src/vault.rs", "")] == [
        "src/vault.rs (its name): vault → credentials"
    ]


def test_a_scan_of_nothing_fails(words, tmp_path):
    assert words.main(["--root", str(tmp_path)]) == 2
    assert len(list(words.files_of(words.ROOT))) > words.FEWEST_FILES
