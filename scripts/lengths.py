"""Check the lengths of files, in Rust and in Python.

    lengths.py [--largest COUNT]

Prints the files over their limits, then the largest ones. The exit code is 1 if a file is over its limit.

A file has at most 420 lines; 600 if it consists of tests, benchmarks or a table. clippy and ruff check the
lengths of functions.
"""

import argparse
import os
import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]

FILE_LIMIT = 420
TEST_LIMIT = 600
# Tables and declarations, which are looked up rather than read, with their limits.
TABLES = {
    "python/kopf/_kopf.pyi": 1230,
    "python/kopf/on.py": 740,
}

# A scan of the repository that sees fewer than this looks into a wrong folder.
FEWEST_FILES = 300

FOLDERS = ("python", "rust", "tests", "scripts", "benches", "examples", "docs", "fuzz")
SKIPPED_FOLDERS = {"target", "__pycache__", "build"}
TESTS = re.compile(r"(^|/)(tests|benches|fuzz|fuzzing)(/|\.rs$)|(^|/)test_[^/]*\.py$")


def files_of(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """The files in Rust and Python of the repository."""
    for top in FOLDERS:
        for folder, folders, files in os.walk(root / top):
            folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
            yield from (
                pathlib.Path(folder) / name for name in sorted(files) if name.endswith((".rs", ".py", ".pyi"))
            )


def lengths(root: pathlib.Path) -> Iterator[tuple[str, int, int]]:
    """The path, the number of lines, and its limit, for each file."""
    for file in files_of(root):
        path = file.relative_to(root).as_posix()
        limit = TABLES.get(path, TEST_LIMIT if TESTS.search(path) else FILE_LIMIT)
        yield path, len(file.read_text().splitlines()), limit


def main(arguments: list[str]) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--largest", type=int, default=0, metavar="COUNT", help="also list the largest ones")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="the repository to check")
    options = parser.parse_args(arguments)
    found = list(lengths(options.root.resolve()))
    if len(found) < (FEWEST_FILES if options.root == ROOT else 1):
        print(f"Only {len(found)} files: is this the repository?", file=sys.stderr)
        return 2
    if options.root == ROOT and (unknown := sorted(set(TABLES) - {path for path, _, _ in found})):
        print(f"TABLES names files that do not exist: {', '.join(unknown)}", file=sys.stderr)
        return 2
    long = [(path, lines, limit) for path, lines, limit in found if lines > limit]
    for path, lines, limit in long:
        print(f"{path} has {lines} lines, the limit is {limit}")
    for path, lines, _ in sorted(found, key=lambda it: -it[1])[: options.largest]:
        print(f"{lines:6} {path}")
    print(f"{len(long)} too long, of {len(found)} files.")
    return 1 if long else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
