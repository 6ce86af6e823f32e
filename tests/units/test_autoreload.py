"""The files watched by `kopf dev --reload`, and the times of their checks."""

import os
import threading
import time

import pytest
from kopf._cli import autoreload
from kopf._cli.autoreload import NativeWatcher, PollingWatcher, python_files


@pytest.fixture
def project(tmp_path):
    for name in [
        *["op.py", "package/inner.py", "README.md", ".venv/lib/a.py", "env/pyvenv.cfg", "env/lib/b.py"],
        *["node_modules/c.py", "__pycache__/d.py", ".git/e.py", "lib/site-packages/f.py"],
    ]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


class Clock:
    """Moves on by a step whenever it is asked."""

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def test_only_the_files_of_the_author_are_watched(project):
    assert {str(path.relative_to(project)) for path in python_files(project)} == {
        "op.py",
        "package/inner.py",
    }


def test_changes_are_found_when_it_is_time_to_look(project):
    clock = Clock()
    manifest = project / "crd.yaml"
    watch = PollingWatcher([project], lambda: [manifest], clock)
    os.utime(project / "op.py", ns=(1, 1))
    assert watch.changed() == set(), "it is too early"
    clock.now += autoreload.SCAN_INTERVAL
    assert watch.changed() == {project / "op.py"}
    manifest.touch()
    (project / "package" / "inner.py").unlink()
    (project / "new.py").touch()
    os.utime(project / ".venv" / "lib" / "a.py", ns=(1, 1))
    clock.now += autoreload.SCAN_INTERVAL
    assert watch.changed() == {manifest, project / "package" / "inner.py", project / "new.py"}
    watch.close()


def test_changes_are_found_at_once_when_they_are_asked_for(project):
    watch = PollingWatcher([project], list, Clock())
    os.utime(project / "op.py", ns=(1, 1))
    assert watch.changed(at_once=True) == {project / "op.py"}
    assert watch.changed(at_once=True) == set()


class Reporter:
    """An operating system that reports a change of the file when it is asked to."""

    def __init__(self, path):
        self.path, self.asked, self.reported = path, threading.Event(), threading.Event()

    def watch(self, *folders, stop_event, **options):
        while not stop_event.is_set():
            self.asked.wait(30)
            self.asked.clear()
            yield [(1, str(self.path))]
            self.reported.set()


def test_a_change_that_is_known_is_not_found_when_it_is_reported(project):
    library = Reporter(project / "op.py")
    watch = NativeWatcher([project], list, library)
    os.utime(project / "op.py", ns=(1, 1))
    (project / "new.py").touch()
    assert watch.changed() == set(), "nothing is reported"
    assert watch.changed(at_once=True) == {project / "op.py", project / "new.py"}
    library.asked.set()
    assert library.reported.wait(30)
    assert watch.changed() == set()
    os.utime(project / "op.py", ns=(2, 2))
    library.reported.clear()
    library.asked.set()
    assert library.reported.wait(30)
    assert watch.changed() == {project / "op.py"}
    watch._stop.set()
    library.asked.set()
    watch.close()


def test_looking_takes_a_twentieth_of_the_time_at_most(project):
    clock = Clock(step=1.0)  # a look takes one second
    watch = PollingWatcher([project], list, clock)
    clock.step = 0.0
    os.utime(project / "op.py", ns=(1, 1))
    clock.now += 19.0
    assert watch.changed() == set()
    clock.now += 1.0
    assert watch.changed() == {project / "op.py"}


class Watchfiles:
    """Reports one batch of changes for each call of `watch`: all that it may, in the folders given."""

    def __init__(self, before_report=lambda number: None):
        self.calls = []
        self._before_report = before_report
        self.waits = threading.Event()

    def watch(self, *folders, watch_filter, stop_event, recursive, **options):
        assert not recursive
        self.calls.append(set(folders))
        self._before_report(len(self.calls))
        paths = [path for folder in folders for path in folder.iterdir()]
        yield {(1, str(path)) for path in paths if watch_filter(1, str(path))}
        self.waits.set()
        stop_event.wait(30)


def test_the_operating_system_reports_changes_of_the_same_files(project):
    manifest = project / "crd.yaml"
    manifest.touch()
    files = [path for path in project.rglob("*") if path.is_file()]
    library = Watchfiles(lambda number: [os.utime(path, ns=(1, 1)) for path in files])
    watch = NativeWatcher([project], lambda: [manifest], library)
    assert library.waits.wait(30)
    watch.close()
    assert watch.changed() == {project / "op.py", project / "package" / "inner.py", manifest}
    assert library.calls == [{project, project / "lib", project / "package"}], "no virtual environment"
    assert watch.changed() == set()


def test_new_folders_of_sources_and_manifests_are_watched(project, tmp_path_factory):
    manifests = tmp_path_factory.mktemp("manifests")
    sources = []

    def add(number):
        if number == 1:
            (project / "package" / "new").mkdir()
            (project / "package" / "new" / "module.py").touch()
            (project / "package" / "new" / ".venv").mkdir()
            (manifests / "crd.yaml").touch()
            sources.append(manifests / "crd.yaml")

    library = Watchfiles(add)
    watch = NativeWatcher([project], lambda: sources, library)
    assert library.waits.wait(30)
    watch.close()
    before = {project, project / "lib", project / "package"}
    assert library.calls == [before, before | {project / "package" / "new", manifests}]
    assert watch.changed() >= {project / "package" / "new" / "module.py", manifests / "crd.yaml"}


def test_if_the_operating_system_cannot_watch_files_are_scanned(project, caplog, monkeypatch):
    class Limited:
        def watch(self, *folders, **options):
            raise OSError("OS file watch limit reached.")

    monkeypatch.setattr(autoreload, "SCAN_INTERVAL", 0.0)
    watch = NativeWatcher([project], list, Limited())
    until = time.monotonic() + 30
    while not (found := watch.changed()) and time.monotonic() < until:
        os.utime(project / "op.py", ns=(1, time.time_ns()))
    watch.close()
    assert found == {project / "op.py"}
    [record] = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "kopf.dev")
    assert "OS file watch limit reached. The files are scanned instead." in record.getMessage()


def test_the_real_library_reports_changes(project):
    watch = autoreload.watch_files([project], list)
    assert isinstance(watch, NativeWatcher)
    until = time.monotonic() + 30
    found = set()
    while not found and time.monotonic() < until:
        (project / "op.py").write_text(str(time.monotonic()))
        watch._stop.wait(0.05)
        found = watch.changed()
    watch.close()
    assert found == {project / "op.py"}
