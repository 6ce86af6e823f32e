"""Files for certificates and keys that TLS libraries load only by paths: in memory, where the system has such
files. So they are on no disk, and containers need no writable folder.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Self


class MemoryFiles:
    """Files by their names, until the end of the context. Only this process can read them."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        self._folder: str | None = None
        self._descriptors: dict[str, int] = {}

    def __enter__(self) -> Self:
        if not hasattr(os, "memfd_create"):
            # The folder is accessible to the user only.
            self._folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kopf-"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Create the files, or replace their contents."""
        for name, content in contents.items():
            if self._folder is not None:
                pathlib.Path(self.path(name)).write_bytes(content)
            else:
                self._write_to_memory(name, content)

    def path(self, name: str) -> str:
        """The path of a file that has been written."""
        if self._folder is not None:
            return os.path.join(self._folder, name)
        return f"/proc/self/fd/{self._descriptors[name]}"

    def _write_to_memory(self, name: str, content: bytes) -> None:
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            descriptor = self._descriptors[name] = os.memfd_create(name)  # closed in other programs
            self._stack.callback(os.close, descriptor)
        os.ftruncate(descriptor, 0)
        written = 0
        while written < len(content):
            written += os.pwrite(descriptor, content[written:], written)
