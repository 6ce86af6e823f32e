"""Output of commands as text, or as one JSON document on stdout with all messages on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TextIO

import click

Output = Literal["text", "json"]
PrintDocument = Callable[[Mapping[str, Any]], None]


def print_text(text: str, stdout: TextIO) -> None:
    """Print the text; characters that the encoding of stdout does not have are replaced."""
    encoding = stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "replace").decode(encoding), file=stdout)


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
