"""Check the lengths of files and of functions, in Rust and in Python.

    lengths.py [PATH ...] [--largest COUNT]

Prints `file:line: the excess` for each file or function over its limit, then the largest functions and files.
The exit code is 1 if anything is over its limit.

A file has at most 420 lines; 600 if it consists of tests, benchmarks or a table. A function has at most 80
lines from its signature to its end, without its docstring; a function in a function is a part of it.
"""

import argparse
import ast
import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]

FUNCTION_LIMIT = 80
FILE_LIMIT = 420
TEST_LIMIT = 600
# Tables and declarations, which are looked up rather than read, with their limits.
TABLES = {
    "python/kopf/_kopf.pyi": 1210,
    "python/kopf/on.py": 740,
}

# A scan of the repository that sees fewer than this looks into a wrong folder.
FEWEST_FILES = 300
FEWEST_FUNCTIONS = 3000

FOLDERS = ("python", "rust", "tests", "scripts", "benches", "examples", "docs", "fuzz")
SKIPPED_FOLDERS = {"target", "__pycache__", "build"}
TESTS = re.compile(r"(^|/)(tests|benches|fuzz|fuzzing)(/|\.rs$)|(^|/)test_[^/]*\.py$")

# Comments and literals, which may contain braces.
RUST_TEXT = re.compile(
    r"""
    //[^\n]* | /\*.*?\*/
    | \bb?c?r(?P<hashes>\#*)".*?"(?P=hashes)
    | "(?:\\.|[^"\\])*" | '(?:\\.[^'\n]*|[^\\'\n])'
    """,
    re.VERBOSE | re.DOTALL,
)
RUST_FUNCTION = re.compile(r"\bfn\s+(\w+)")


@dataclasses.dataclass(frozen=True)
class Length:
    """The number of lines of a file or of a function, with the limit for it."""

    place: str
    name: str
    lines: int
    limit: int

    def __str__(self) -> str:
        return f"{self.place}: {self.name} has {self.lines} lines, the limit is {self.limit}"


def rust_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """The outermost functions of a Rust file: the name, the first line, the number of lines."""
    code = RUST_TEXT.sub(lambda match: "\n" * match[0].count("\n") or " ", text)
    end = 0
    for match in RUST_FUNCTION.finditer(code):
        if match.start() < end:
            continue
        body = _body(code, match.end())
        if body is not None:
            end = body
            yield match[1], code.count("\n", 0, match.start()) + 1, code.count("\n", match.start(), end) + 1


def _body(code: str, start: int) -> int | None:
    """Where the body of the function ends whose name ends at `start`; None if it has only a signature."""
    depth = braces = 0
    for position in range(start, len(code)):
        sign = code[position]
        if sign in "([":
            depth += 1
        elif sign in ")]":
            depth -= 1
        elif sign == "{":
            braces += 1
        elif sign == "}":
            braces -= 1
            if braces == 0:
                return position
        elif sign == ";" and depth == 0 and braces == 0:
            return None
    return None


def python_functions(text: str) -> Iterator[tuple[str, int, int]]:
    """The outermost functions and the methods of a Python file, without their docstrings."""
    pending: list[ast.AST] = [ast.parse(text)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                docstring = node.body[0]
                assert docstring.end_lineno is not None
                lines -= docstring.end_lineno - docstring.lineno + 1
            yield node.name, node.lineno, lines
        else:
            pending += ast.iter_child_nodes(node)


def files_of(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """The files in Rust and Python of the repository."""
    for top in FOLDERS:
        for folder, folders, files in os.walk(root / top):
            folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
            yield from (
                pathlib.Path(folder) / name for name in sorted(files) if name.endswith((".rs", ".py", ".pyi"))
            )


def measure(root: pathlib.Path, paths: list[str]) -> tuple[list[Length], list[Length]]:
    """The lengths of all files, and those of all functions."""
    files, functions = [], []
    for file in files_of(root):
        path = file.relative_to(root).as_posix()
        if paths and not any(path == chosen or path.startswith(f"{chosen}/") for chosen in paths):
            continue
        text = file.read_text()
        limit = TABLES.get(path, TEST_LIMIT if TESTS.search(path) else FILE_LIMIT)
        files.append(Length(path, "the file", len(text.splitlines()), limit))
        found = rust_functions(text) if file.suffix == ".rs" else python_functions(text)
        functions += [
            Length(f"{path}:{line}", f"{name}()", lines, FUNCTION_LIMIT) for name, line, lines in found
        ]
    return files, functions


def main(arguments: list[str]) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument(
        "paths", nargs="*", help="files or folders, relative to the repository (default: all)"
    )
    parser.add_argument("--largest", type=int, default=0, metavar="COUNT", help="also list the largest ones")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the repository to check")
    options = parser.parse_args(arguments)
    paths = [os.path.normpath(path) for path in options.paths]
    files, functions = measure(options.root.resolve(), paths)
    if options.root == ROOT and not paths:
        if len(files) < FEWEST_FILES or len(functions) < FEWEST_FUNCTIONS:
            print(
                f"Only {len(files)} files, {len(functions)} functions: is this the repository?",
                file=sys.stderr,
            )
            return 2
        if unknown := sorted(set(TABLES) - {file.place for file in files}):
            print(f"TABLES names files that do not exist: {', '.join(unknown)}", file=sys.stderr)
            return 2
    elif not files:
        print("No files were found.", file=sys.stderr)
        return 2
    long = [length for length in files + functions if length.lines > length.limit]
    if long:
        print(*long, sep="\n")
    for lengths in (files, functions):
        for length in sorted(lengths, key=lambda it: -it.lines)[: options.largest]:
            print(f"{length.lines:6} {length.place} {length.name}")
    print(f"{len(long)} too long, of {len(files)} files and {len(functions)} functions.")
    return 1 if long else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
