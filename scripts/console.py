"""Commands of documents with the output that the documents show: reads them, and compares.

A block of commands is fenced as `console`. Lines that begin with `$ ` are commands, a backslash at the end
continues the line. Their output follows; in it, `...` stands for any text within a line, and a line with
nothing but `...` for any lines.

Usage: python scripts/console.py README.md 'make demo'

runs that command as the page has it, shows its output as it comes, and compares the end of it.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys

FENCE = re.compile(r"^```console\n(.*?)^```", re.M | re.S)
FILE = re.compile(r"`([\w./-]+\.\w+)`[^\n`]*:\n\n```\w+\n(.*?)^```", re.M | re.S)

COLUMNS = re.compile(r" {2,}")
AGE = re.compile(r"  (?:\d+[dhms])+$")
FAILURE = re.compile(r"^Error(?: from server)?\b.*:|^\S+:\d+: error: ")


@dataclasses.dataclass
class Command:
    """A command of a page with the lines that are shown after it."""

    text: str
    shown: list[str]


@dataclasses.dataclass
class File:
    """A file of a page: the text in a fence after a line that ends with the name and a colon."""

    name: str
    text: str


def steps_of(page: str) -> list[Command | File]:
    """The commands and the files of a page, in their order."""
    found: list[tuple[int, list[Command | File]]] = [
        (match.start(), [File(match[1], match[2])]) for match in FILE.finditer(page)
    ]
    found += [(match.start(), list(_commands_of(match[1]))) for match in FENCE.finditer(page)]
    return [step for _, steps in sorted(found, key=lambda it: it[0]) for step in steps]


def _commands_of(block: str) -> list[Command]:
    commands: list[Command] = []
    continued = False
    for line in block.splitlines():
        if continued:
            commands[-1].text += f"\n{line}"
        elif line.startswith("$ "):
            commands.append(Command(line.removeprefix("$ "), []))
        elif commands:
            commands[-1].shown.append(line)
        continued = line.endswith("\\") and (continued or line.startswith("$ "))
    return commands


def is_shown(shown: str, line: str) -> bool:
    """Whether the line of the output is the line that is shown, with `...` for any text.

    The width of columns depends on other rows, and ages at the end of a row depend on the time.
    """
    pattern = ".*".join(re.escape(part) for part in _as_row(shown).split("..."))
    return re.fullmatch(pattern, _as_row(line)) is not None


def _as_row(line: str) -> str:
    return AGE.sub("  AGE", COLUMNS.sub("  ", line.strip()))


def shows_failure(shown: list[str]) -> bool:
    """Whether the output that is shown is that of a command that fails: an error of kubectl or of mypy."""
    return any(FAILURE.search(line) for line in shown)


def difference(shown: list[str], lines: list[str]) -> str | None:
    """The difference to the documented output; None if there is none."""
    *_, end = (
        "\n".join(shown).rpartition("\n...\n") if shown[0] != "..." else "\n".join(shown).rpartition("...\n")
    )
    expected = [line for line in end.splitlines() if line.strip()]
    got = [line for line in lines if line.strip()][-len(expected) :]
    if len(got) == len(expected) and all(map(is_shown, expected, got)):
        return None
    return "\n".join(["The page shows:", *expected, "The output ends with:", *got])


def main(page: str, text: str) -> int:
    steps = steps_of(pathlib.Path(page).read_text())
    found = [step for step in steps if isinstance(step, Command) and step.text == text]
    if len(found) != 1:
        print(f"{page} has the command {text!r} {len(found)} times, not once.", file=sys.stderr)
        return 2
    lines: list[str] = []
    with subprocess.Popen(
        text, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    wrong = difference(found[0].shown, lines) if found[0].shown else None
    if wrong is not None:
        print(wrong, file=sys.stderr)
    return process.returncode or (wrong is not None)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
