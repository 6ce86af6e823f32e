"""Output of commands as text, or as one JSON document on stdout with all messages on stderr."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TextIO

import click

Output = Literal["text", "json"]
PrintDocument = Callable[[Mapping[str, Any]], None]

PARTS = 500
"""How many parts of a long output are printed at a time."""


def print_text(text: str, stdout: TextIO, *, is_line: bool = True) -> None:
    """Print the text, as a line or as a part of the output.

    Characters that the encoding of stdout does not have are replaced.
    """
    encoding = stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "replace").decode(encoding), file=stdout, nl=is_line)


def print_parts(parts: Iterable[str], stdout: TextIO) -> None:
    """Print the parts of a long output as they come, many at a time: the whole output is never in memory."""
    rest = iter(parts)
    while text := "".join(itertools.islice(rest, PARTS)):
        print_text(text, stdout, is_line=False)


@contextlib.contextmanager
def document_output(output: Output) -> Iterator[PrintDocument]:
    """Redirect what is printed in the block to stderr, and get the function that prints the document.

    For the output as text, nothing is redirected, and the function prints nothing.
    """
    if output == "text":
        yield lambda document: None
        return
    stdout = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        yield lambda document: click.echo(json.dumps(document, indent=2), file=stdout)
