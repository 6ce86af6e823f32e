"""Detection of changed files, for `kopf dev --reload`.

If `watchfiles` is installed, the operating system reports the changes. Otherwise, the files are scanned
regularly, for at most a twentieth of the time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

logger = logging.getLogger("kopf.dev")

SCAN_INTERVAL = 0.5
MAX_SCAN_SHARE = 0.05  # of the time that looking may take
LOOK_FOR_FOLDERS_MS = 2000  # how often the list of watched folders is made again
# Installed packages, and what is made from files: the author does not edit these.
IGNORED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages", "dist-packages"})

Sources = Callable[[], Collection[pathlib.Path]]
"""The files besides Python modules, such as manifests: they can come and go."""


class FileWatcher(Protocol):
    """Reports changed files."""

    def changed(self, *, at_once: bool = False) -> set[pathlib.Path]:
        """The files that have come, gone, or changed since the last call, as far as they have been noticed.

        With `at_once`, all files are looked at.
        """

    def close(self) -> None:
        """Stop watching."""


def watch_files(folders: Collection[pathlib.Path], sources: Sources) -> FileWatcher:
    """Watch the Python files below the folders, and the other files."""
    try:
        import watchfiles
    except ImportError:
        return PollingWatcher(folders, sources)
    return NativeWatcher(folders, sources, watchfiles)


def python_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """The Python files of the folder and of those in it, except for virtual environments and the like."""
    for inner in folders_of(folder):
        with contextlib.suppress(OSError), os.scandir(inner) as entries:
            yield from (pathlib.Path(entry.path) for entry in entries if entry.name.endswith(".py"))


def folders_of(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """The folder and those in it, except for virtual environments and the like."""
    yield root
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not is_ignored(pathlib.Path(entry.path)):
                yield from folders_of(pathlib.Path(entry.path))


def is_ignored(folder: pathlib.Path) -> bool:
    """Whether nothing in the folder belongs to the operator."""
    name = folder.name
    return name.startswith(".") or name in IGNORED_FOLDERS or (folder / "pyvenv.cfg").exists()


def versions_of(paths: Iterable[pathlib.Path]) -> dict[pathlib.Path, tuple[int, int, int]]:
    """The present version of each of the files that exist."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.stat()
            found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return found


class PollingWatcher:
    """Looks at the times of the files, and not too often."""

    def __init__(
        self,
        folders: Collection[pathlib.Path],
        sources: Sources,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._folders = [folder.resolve() for folder in folders]
        self._sources = sources
        self._clock = clock
        self._next = 0.0
        self._known = self._scan()

    def changed(self, *, at_once: bool = False) -> set[pathlib.Path]:
        """The files that have come, gone, or changed; nothing before it is time to look again."""
        if self._clock() < self._next and not at_once:
            return set()
        found = self._scan()
        differences = found.items() ^ self._known.items()
        self._known = found
        return {path for path, _ in differences}

    def close(self) -> None:
        """Nothing is open."""

    def _scan(self) -> dict[pathlib.Path, tuple[int, int, int]]:
        began = self._clock()
        paths = {path for folder in self._folders for path in python_files(folder)}
        found = versions_of(paths.union(self._sources()))
        ended = self._clock()
        self._next = ended + max(SCAN_INTERVAL, (ended - began) / MAX_SCAN_SHARE)
        return found


class NativeWatcher:
    """Gets the changes from the operating system. If it cannot watch them, the files are scanned instead.

    Each folder of the author is watched alone: with everything below the roots, virtual environments would
    take most of the watches that the operating system allows.
    """

    def __init__(self, folders: Collection[pathlib.Path], sources: Sources, watchfiles: Any) -> None:
        super().__init__()
        self._roots = {folder.resolve() for folder in folders}
        self._sources = sources
        self._watchfiles = watchfiles
        self._reported: set[pathlib.Path] = set()
        self._known = versions_of(self._find_files())
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._fallback: PollingWatcher | None = None
        self._thread = threading.Thread(target=self._run, name="kopf-reload", daemon=True)
        self._thread.start()

    def changed(self, *, at_once: bool = False) -> set[pathlib.Path]:
        """The files that have come, gone, or changed since the last call.

        The operating system reports changes late, and may report one several times.
        """
        with self._lock:
            reported, self._reported = self._reported, set()
            fallback = self._fallback
        paths = {*self._known, *self._find_files()} if at_once else reported
        found = versions_of(paths)
        changed = {path for path in paths if found.get(path) != self._known.get(path)}
        self._known = {path: it for path, it in self._known.items() if path not in changed} | found
        return changed | fallback.changed(at_once=at_once) if fallback is not None else changed

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            watched = self._find_folders()
            while not self._stop.is_set():
                folders = self._watch(watched)
                # Files that are added before a new folder is watched are not reported.
                self._note(path for folder in folders - watched for path in self._files_in(folder))
                watched = folders
        except Exception as e:
            fallback = PollingWatcher(self._roots, self._sources)
            with self._lock:
                self._fallback = fallback
            logger.warning(
                f"The operating system does not report changed files: {str(e).rstrip('.')}."
                " The files are scanned instead."
                " On Linux, fs.inotify.max_user_watches and fs.inotify.max_user_instances limit it."
            )

    def _watch(self, watched: set[pathlib.Path]) -> set[pathlib.Path]:
        """Report changes until other folders are to be watched; return these."""
        batches = self._watchfiles.watch(
            *watched,
            watch_filter=self._is_watched,
            stop_event=self._stop,
            debounce=300,
            raise_interrupt=False,
            recursive=False,
            rust_timeout=LOOK_FOR_FOLDERS_MS,
            yield_on_timeout=True,
        )
        with contextlib.closing(batches):
            for batch in batches:
                self._note(path for _, path in batch)
                folders = self._find_folders()
                if folders != watched:
                    return folders
        return watched

    def _note(self, paths: Iterable[str | pathlib.Path]) -> None:
        files = {path for path in map(pathlib.Path, paths) if not path.is_dir()}
        with self._lock:
            self._reported |= files

    def _find_files(self) -> set[pathlib.Path]:
        own = {path for root in self._roots for path in python_files(root)}
        return own | {path.resolve() for path in self._sources()}

    def _find_folders(self) -> set[pathlib.Path]:
        own = {folder for root in self._roots for folder in folders_of(root)}
        parents = {path.resolve().parent for path in self._sources()}
        return own | {folder for folder in parents if folder.is_dir()}

    def _files_in(self, folder: pathlib.Path) -> Iterator[pathlib.Path]:
        with contextlib.suppress(OSError):
            yield from (path for path in folder.iterdir() if self._is_watched(None, str(path)))

    def _is_watched(self, change: object, path: str) -> bool:
        file = pathlib.Path(path)
        if file in {source.resolve() for source in self._sources()}:
            return True
        root = next((root for root in self._roots if root in file.parents), None)
        if root is None or (file.suffix != ".py" and not file.is_dir()):
            return False
        inner = [folder for folder in (file, *file.parents) if root in folder.parents]
        return not any(is_ignored(folder) for folder in inner if folder != file or file.is_dir())
