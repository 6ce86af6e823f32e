"""Runs scenarios under both Kopfs, several at the same time, and compares each when both recordings exist."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import pathlib
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence

from . import compare
from .cluster import ApiError, Cluster
from .proxy import Loop
from .scenario import Scenario
from .session import Session, StepFailed


def play(session: Session, *, keep: bool) -> compare.Recording:
    """Run the steps of a scenario. A failure ends the run, and is a part of the recording."""
    begun = time.monotonic()
    failure = None
    try:
        try:
            session.open()
            session.scenario.steps.run(session)
        except StepFailed as error:
            failure = str(error)
        except ApiError as error:
            failure = f"the API server rejected a step: {error}"
        except Exception as error:  # a defect of one scenario does not end the others
            traceback.print_exc(file=sys.stderr)
            failure = f"{type(error).__name__}: {error}"
        if failure:
            with contextlib.suppress(ApiError):
                session.snapshot("at the failure")
        return {**session.recording(failure), "seconds": round(time.monotonic() - begun, 1)}
    finally:
        session.close()
        if not keep:
            shutil.rmtree(session.workdir, ignore_errors=True)


@dataclasses.dataclass
class Runner:
    """The options of a run."""

    cluster: Cluster
    reference: str | dict[str, compare.Recording]  # the interpreter, or saved recordings
    candidate: str
    workdir: pathlib.Path
    jobs: int = 2
    keep: bool = False
    strict: Collection[str] = ()
    # The recordings of Kopf 1.45.
    recordings: dict[str, compare.Recording] = dataclasses.field(default_factory=dict)
    _loop: Loop = dataclasses.field(default_factory=Loop)
    _cancelled: threading.Event = dataclasses.field(default_factory=threading.Event)

    def run(
        self, scenarios: Sequence[Scenario], report: Callable[[compare.Verdict], None]
    ) -> list[compare.Verdict]:
        """Run the scenarios, and report each verdict."""
        verdicts = []
        candidates: dict[str, compare.Recording] = {}
        with concurrent.futures.ThreadPoolExecutor(max_workers=self.jobs) as pool, self._cancelling(pool):
            futures = {}
            for scenario in scenarios:
                sides = [(candidates, self.candidate)]
                if isinstance(self.reference, str):
                    sides.insert(0, (self.recordings, self.reference))
                else:
                    missing = {"failure": "there is no saved recording"}
                    self.recordings[scenario.name] = self.reference.get(scenario.name, missing)
                for recordings, python in sides:
                    futures[pool.submit(self._play, scenario, python)] = scenario, recordings
            for future in concurrent.futures.as_completed(futures):
                scenario, recordings = futures[future]
                name = scenario.name
                recordings[name] = future.result()
                if name in self.recordings and name in candidates:
                    verdict = compare.compare(scenario, self.recordings[name], candidates[name], self.strict)
                    verdicts.append(verdict)
                    report(verdict)
        return verdicts

    def _play(self, scenario: Scenario, python: str) -> compare.Recording:
        session = Session(self.cluster, self._loop, scenario, python, self.workdir, self._cancelled)
        return play(session, keep=self.keep)

    @contextlib.contextmanager
    def _cancelling(self, pool: concurrent.futures.Executor) -> Iterator[None]:
        """At an interrupt, end the running scenarios with their operators, and start no others."""
        try:
            yield
        except BaseException:
            self._cancelled.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
