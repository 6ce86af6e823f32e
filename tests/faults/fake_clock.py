"""A fake wall clock and a fake host name for a process, by a small preloaded C library. It needs a C
compiler, but no privileges. Timers are not affected, as when a real clock is set.
"""

import os
import pathlib
import shutil
import struct
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).with_name("fake_clock.c")


class FakeClock:
    """A clock that jumps, and names that do not resolve."""

    def __init__(self, folder: pathlib.Path) -> None:
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            pytest.skip("there is no C compiler")
        self._state, library = folder / "fake_clock.state", folder / "fake_clock.so"
        self.set()
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True, timeout=60
        )
        self.environment = {"LD_PRELOAD": str(library), "ILLUSION_STATE": str(self._state)}

    def set(self, *, ahead: int = 0, nameless: bool = False) -> None:
        """How many seconds the clock is ahead, and whether no name resolves."""
        with self._state.open("r+b" if self._state.exists() else "w+b") as file:
            file.write(struct.pack("=qq", ahead, nameless))
