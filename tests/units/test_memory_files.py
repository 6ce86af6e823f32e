"""Files in memory for TLS libraries, and the folder in their place on systems without them."""

from __future__ import annotations

import os
import pathlib
import stat

import pytest
from kopf._kits.webhooks.memory_files import MemoryFiles


@pytest.fixture(params=["memory", "folder"])
def files(request, monkeypatch, tmp_path):
    if request.param == "folder":
        monkeypatch.delattr(os, "memfd_create", raising=False)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    elif not hasattr(os, "memfd_create"):
        pytest.skip("the system has no files in memory")
    else:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with MemoryFiles() as files:
        yield files
    assert not list(tmp_path.iterdir())


def test_files_can_be_read_by_their_paths_and_replaced(files):
    files.write({"tls.crt": b"certificate", "tls.key": b"key"})
    files.write({"tls.crt": b"next"})
    assert pathlib.Path(files.path("tls.crt")).read_bytes() == b"next"
    assert pathlib.Path(files.path("tls.key")).read_bytes() == b"key"


def test_other_users_and_programs_have_no_access(files):
    files.write({"tls.key": b"key"})
    path = files.path("tls.key")
    if path.startswith("/proc/"):
        assert not os.get_inheritable(int(path.rpartition("/")[2]))
    else:
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700


def test_files_end_with_the_context():
    with MemoryFiles() as files:
        files.write({"tls.key": b"key"})
        path = files.path("tls.key")
        identity = os.stat(path).st_ino
    assert not os.path.exists(path) or os.stat(path).st_ino != identity
