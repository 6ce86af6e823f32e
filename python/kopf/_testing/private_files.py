"""Files with secrets: kubeconfigs and payloads of Secrets."""

from __future__ import annotations

import os
import pathlib
import tempfile


def write_private(path: pathlib.Path, text: str) -> None:
    """Replace the file by one which only the user can read (mode 0600), in whole or not at all.

    The text is on the disk when this returns. On errors (`OSError`), the old file stays.
    """
    path = path.resolve()  # what a link points to is replaced, not the link
    handle, tmp_path = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp_path, path)
    except BaseException:
        os.unlink(tmp_path)
        raise
