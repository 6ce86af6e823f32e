"""Check for words that are not the field's, in comments, documentation, messages, names of all kinds.

    words.py [PATH ...] [--summary] [--only WORD ...] [--skip WORD ...]

Prints `file:line: word → suggestion` for each place, and the number of places per folder. The exit code is 1
if there are any. Identifiers are split into their parts: `tell_all`, `tellAll` and `TELL_ALL` contain "tell".

The words are those of "How code looks" in CONTRIBUTING.md: metaphors, archaisms, personification, and second
words for what Kubernetes, Kopf, or Python have already named. A word that is a term of the field in some
contexts has a row in EXCEPTIONS with the reason.
"""

import argparse
import bisect
import collections
import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]

# A scan of the repository that sees fewer files than this looks into a wrong folder.
FEWEST_FILES = 500

# Words, wherever they occur, with what to write instead.
WORDS = {
    # Programs do not speak, hear, or feel.
    "tell tells telling told": "report, pass, log, notify, show",
    "say says said saying": "state, show, specify, log",
    "hear hears heard": "received, observed",
    "learnt": "observed, discovered",
    "trouble": "error, failure",
    "patience impatient": "timeout, grace period",
    # Archaisms.
    "somebody nobody anybody whoever": "name the actor: a handler, a client, no process",
    "whatever": "any, regardless of",
    "anew": "again; relisted, reopened",
    "beside": "next to, in addition to",
    "bear bears bearing bore borne": "have, carry, contain",
    "wanted": "required, requested, desired",
    "alike": "the same, both",
    # Metaphors.
    "lane lanes": "concurrency slot, queue",
    "vault": "credentials",
    "pulse pulses": "loop iteration, heartbeat",
    "relay relays": "forwarder, queue",
    "ledger": "pending writes",
    "salvage": "partial patch",
    "theatre troupe": "test environment, operators",
    "errand errands": "command, job",
    "farewell farewells": "shutdown message",
    "wheel": "scheduler, timer queue",
    "border borders": "Python bindings, boundary",
    "mishap mishaps": "failure, fault",
    "crowd crowds crowded crowding": "burst, overload",
    "storm storms flood floods": "burst, overload",
    "echo echoes": "the watch event caused by our own patch",
    "notes": "Kopf's annotations; log entries",
    "journal": "request log",
    "packed": "compressed",
    "leftover leftovers": "stale (and of what)",
    "house houses": "module, package",
    "death deaths die dies died dying": "crash, exit, end",
    "life lives": "run, lifetime",
    # Second words for terms of the field.
    "definition definitions": "CRD",
    "refuse refuses refused refusing": "reject (requests), deny (admission)",
}

# A clause in place of a noun, which is not a question.
CLAUSE = (
    r" (?:is|was|are|were|has|had|have|can|cannot|may|must|they|it|he|we|a|an|the|all|only|every|each)\b"
    r"[^.?!]*(?=[.!]|\"{3}|$)"
)

# Phrases, in prose: the gap between two words may be a line break with the mark of a comment.
PHRASES = {
    r"of (?:its|their|one's|your|our|my|his|her) own": ("of one's own", "its, separate, dedicated"),
    r"as ever": ("as ever", "as before, as usual"),
    r"(?:is|was|are|were) so(?=[.,;:)]|$)": ("is so", "is true, applies"),
    r"(?:at rest|(?:is|are|be|gets?|was|were) quiet)": ("at rest, quiet", "idle"),
    r"(?:is|are|was|were) still(?=[.,;:)])": ("still", "idle"),
    r"streams? of news": ("stream of news", "watch"),
    r"signs? of life": ("signs of life", "keep-alive, heartbeat"),
    r"ways in": ("ways in", "credentials"),
    r"(?:cluster|server)s? in memory": ("server in memory", "embedded API server"),
    r"(?:is|are|was|were|be) waited for": ("is waited for", "the actor waits for it"),
    r"knows? better": ("knows better", "name the fact"),
    r"the reference(?! (?:page|documentation|manual|guide|of|to|count)s?)": ("the reference", "Kopf 1.45"),
    r"the original(?=[.,;:)]| (?:does|has|is|was|also|one)\b)": ("the original", "Kopf 1.45"),
    r"(?<=[.!?:] )what" + CLAUSE: ("what + clause", "a noun for it"),
    r"^[ \t]*(?://[/!]|#:?|\"{3}|[*-]) ?what" + CLAUSE: ("what + clause", "a noun for it"),
}

# Terms of Kubernetes, Kopf, Python and Unix: (word, files, line, the reason).
EXCEPTIONS = [
    ("definition", "", r"(?i)custom[_ ]?resource[_ ]?definition", "the resource kind"),
    ("definitions", "", r"(?i)custom[_ ]?resource[_ ]?definition", "the resource kind"),
    ("definitions", "", r"#/definitions|[\"']definitions[\"']", "a key of OpenAPI documents"),
    ("refused", "", r"(?i)connection[_ ]?refused", "ECONNREFUSED: the error of the operating system"),
    ("echo", r"Makefile|\.ci/|\.github/|\.sh$|Dockerfile", "", "the shell's command"),
    ("echo", "", r"[\"'`$] ?echo |(?:/bin/|&& |\| )echo|\becho [\"'\$]", "the shell's command"),
    ("echo", r"tests/faults/plugin\.py", "", "the shell's command"),
    ("definition", r"rust/kopf-apiserver/", r"(?i)column ?definition", "columns of tables"),
    ("definitions", r"rust/kopf-apiserver/", r"(?i)column ?definition", "columns of tables"),
    ("definition", r"rust/kopf-apiserver/", r"configuration definition", "a description of Kubernetes"),
    ("packed", r"rust/kopf-apiserver/src/scheme/protobuf\.rs", "", "an encoding of protocol buffers"),
    ("echo", "", r"click\.echo", "click's function"),
    (
        "echoes",
        r"python/kopf/_intents/reconciling|tests/behaviours/reconcile/|docs/|CHANGELOG\.md",
        r"\bechoes\b",
        "`kopf.owned(echoes=)`: a name of the specification",
    ),
    ("notes", "", r"(?i)release notes|__notes__|add_note", "release notes; notes of exceptions, PEP 678"),
    ("packed", "", r"repr\(.*packed", "a layout of structs"),
    ("refused", r"docs/probes\.md", r"`refused`", "a value in the JSON of /streams"),
    ("trouble", "", r"`trouble`|,trouble=|`trouble=|trouble: \"", "a label of a metric"),
    ("trouble", "", r"KopfStreamsInTrouble", "an alert: a name of the specification"),
    ("refused", "", r"KopfWritesRefused", "an alert: a name of the specification"),
    (
        "refused",
        r"python/kopf/_cli/monitoring/|tests/units/alerts|tests/behaviours/metrics/",
        r"[\"|~]refused[\"|]",
        "a value of labels",
    ),
    (
        "border",
        "",
        r"[\"'`\]]border\b|border_limit|kopf_border_\w+",
        "a check of the health, its setting, and its metrics",
    ),
    (
        "vault",
        r"python/|tests/|docs/|rust/kopf-py/|CHANGELOG\.md",
        "",
        "`kopf.operator(vault=)` and the class `Vault`, as in Kopf",
    ),
    ("life", "", r"LifeCycleFn", "a type of Kopf"),
    ("notes", r"python/kopf/_cli/error_report\.py", "", "notes of exceptions, PEP 678"),
    ("refused", r"rust/kopf-core/tests/explorer/", r"Refused", "a variant of a response in the explorer"),
    (
        "refused",
        r"rust/kopf-engine/",
        r"\"refused\"|\bkopf_stream|trouble",
        "a value in the JSON of /streams",
    ),
    (
        "trouble",
        r"rust/kopf-engine/|tests/",
        r"\"trouble\"|trouble\\?\"|in trouble",
        "a key in the JSON of /streams; a response of aiohttp",
    ),
    ("wheel", r"^(?!rust/|python/)", "", "a distribution format of Python"),
    ("wheel", "", r"(?i)pip|python|maturin|linux|whl|install|packag", "a distribution format of Python"),
]

SUFFIXES = {".py", ".pyi", ".rs", ".md", ".toml", ".sh", ".yml", ".yaml", ".c", ".txt", ".cfg", ""}
# The tables of this check, texts of others, generated names, recorded data.
NOT_OURS = re.compile(
    r"scripts/words\.py|tests/contract/test_words\.py|LICENSE|.*/THIRD-PARTY\.txt|Cargo\.lock"
    r"|rust/kopf-apiserver/src/scheme/builtin/.*\.txt|.*/corpus/.*|python/.*\.so|benches/peers/controller-runtime/peer"
)
SKIPPED_FOLDERS = {"target", "site", "dist", "build", "corpus", "artifacts", "__pycache__"}
HIDDEN_FOLDERS = {".ci", ".github"}

PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
GAP = r"(?:[^\S\n]|\n\s*(?:(?://[/!]?|#:?|\*)\s)?)+"


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """A place with a word: in a line of a file, or in the file's name (the line 0)."""

    path: str
    line: int
    word: str
    suggestion: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else f"{self.path} (its name)"
        return f"{place}: {self.word} → {self.suggestion}"


def as_pattern(phrase: str) -> str:
    """The regular expression of a phrase: of whole words, over the ends of lines."""
    return phrase if phrase.startswith(("(?<", "^")) else r"\b" + phrase.replace(" ", GAP)


SUGGESTIONS = {word: suggestion for words, suggestion in WORDS.items() for word in words.split()}
PATTERNS = [
    (re.compile(as_pattern(phrase), re.IGNORECASE | re.MULTILINE), name, suggestion)
    for phrase, (name, suggestion) in PHRASES.items()
]


def check_line(path: str, number: int, line: str) -> Iterator[Finding]:
    """Find the words of a line of the file."""
    for match in PART.finditer(line):
        word = match[0].lower()
        suggestion = SUGGESTIONS.get(word)
        if suggestion is not None and not is_excepted(word, path, line):
            yield Finding(path, number, word, suggestion)


def check_text(path: str, text: str) -> Iterator[Finding]:
    """Find the words and the phrases of a file, and the words in its name."""
    yield from check_line(path, 0, path)
    for number, line in enumerate(text.splitlines(), start=1):
        yield from check_line(path, number, line)
    ends = [match.start() for match in re.finditer("\n", text)]
    for pattern, name, suggestion in PATTERNS:
        for match in pattern.finditer(text):
            yield Finding(path, bisect.bisect_left(ends, match.start()) + 1, name, suggestion)


def is_excepted(word: str, path: str, line: str) -> bool:
    """Whether the word is a term of the field in this line of this file."""
    return any(
        word == excepted and re.search(files, path) and re.search(lines, line)
        for excepted, files, lines, _ in EXCEPTIONS
    )


def files_of(root: pathlib.Path) -> Iterator[str]:
    """The files of the repository that are checked, relative to its root."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED_FOLDERS and (not name.startswith(".") or name in HIDDEN_FOLDERS)
        )
        for name in sorted(files):
            path = (pathlib.Path(folder) / name).relative_to(root)
            ours = path.suffix in SUFFIXES and not NOT_OURS.fullmatch(path.as_posix())
            if ours and not name.startswith("."):
                yield path.as_posix()


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether the file is one of the given files, or in one of the given folders."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def check_files(root: pathlib.Path, paths: list[str]) -> tuple[list[Finding], int]:
    """Check the files below the paths, or all files; also return how many files there were."""
    chosen = [path for path in files_of(root) if not paths or is_below(path, paths)]
    findings: list[Finding] = []
    for path in chosen:
        findings += check_text(path, (root / path).read_text(encoding="utf-8", errors="replace"))
    return sorted(findings), len(chosen)


def summarize(findings: list[Finding]) -> str:
    """The number of findings per top folder and per word, the largest first."""
    folders = collections.Counter(
        "/".join(finding.path.split("/")[: 2 if "/" in finding.path else 1]) for finding in findings
    )
    words = collections.Counter(finding.word for finding in findings)
    lines = [f"{count:6} {name}" for name, count in folders.most_common()]
    lines += ["", ", ".join(f"{word} {count}" for word, count in words.most_common())]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument(
        "paths", nargs="*", help="files or folders, relative to the repository (default: all)"
    )
    parser.add_argument("--summary", action="store_true", help="only the numbers per folder and per word")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="check these words only")
    parser.add_argument("--skip", action="append", default=[], metavar="WORD", help="leave this word out")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the repository to check")
    options = parser.parse_args(arguments)
    paths = [os.path.normpath(path) for path in options.paths]
    findings, seen = check_files(options.root.resolve(), paths)
    if seen < (1 if paths or options.root != ROOT else FEWEST_FILES):
        print(f"Only {seen} files were found: is this the repository?", file=sys.stderr)
        return 2
    findings = [
        finding
        for finding in findings
        if (not options.only or finding.word in options.only) and finding.word not in options.skip
    ]
    if not options.summary:
        print(*findings, sep="\n")
    if findings:
        print(summarize(findings))
    print(f"{len(findings)} words to replace in {seen} files.")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
