"""Daemons and timers while they are called. It owns their live bodies, patches and flags; it must not
know when they are called or are to stop. What sleeps costs nothing but its place in a dict here."""

from __future__ import annotations

import asyncio
import contextvars
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopf._intents.handlers import ResourceHandler, SpawningHandler, TimerHandler
from kopf._intents.settings import OperatorSettings
from kopf._objects.bodies import Body
from kopf._objects.patches import Patch
from kopf._objects.resources import Resource
from kopf._objects.stoppers import DaemonStopper, DaemonStoppingReason
from kopf._runtime import bridge
from kopf._runtime.causes import LazyDaemonCause, lazily
from kopf._runtime.context import cause_var
from kopf._runtime.eager_tasks import start_task
from kopf._runtime.handling import deliver
from kopf._runtime.invocation import Attempted, Callee, Invoker
from kopf._runtime.loggers import ObjectLogger, full_name
from kopf._runtime.memos import Memories
from kopf._testing.idle_tracker import Pulse, pulse_var
from kopf._testing.virtual_clock import VirtualTime

ABANDONED = DaemonStoppingReason.DAEMON_ABANDONED.value


class Subject:
    """An object with daemons or timers: its live body, and what all of them share."""

    __slots__ = ("_logger", "_memories", "_settings", "body", "count", "object", "resource", "uid")

    def __init__(
        self, uid: str, object: bridge.Object, resource: Resource, memories: Memories, settings: Any
    ) -> None:
        self.uid = uid
        self.object = object
        self.resource = resource
        self.body = Body(object)
        self.count = 0
        self._memories = memories
        self._settings = settings
        self._logger: ObjectLogger | None = None

    @property
    def logger(self) -> ObjectLogger:
        """The logger of all of them."""
        if self._logger is None:
            self._logger = ObjectLogger(body=self.body, settings=self._settings)
        return self._logger

    @property
    def memo(self) -> Any:
        """The memo of the object."""
        return self._memories.recall(self.uid)

    def replace(self, object: bridge.Object) -> None:
        """Take a new state of the object; the views of the old one show it."""
        self.object = object
        self.body._replace_with(object)


class Run:
    """One daemon or timer of one object, from its first call to its end.

    There can be as many as objects: between calls, it keeps no views and arguments.
    """

    __slots__ = (
        "_patch",
        "_stopper",
        "callee",
        "cancelled",
        "cause",
        "context",
        "error",
        "indices",
        "job",
        "rest",
        "returned",
        "subject",
        "task",
    )

    def __init__(
        self, subject: Subject, callee: Callee, indices: Mapping[str, Any], rest: _Rest | None = None
    ) -> None:
        self.subject = subject
        self.callee = callee
        self.indices = indices
        self.rest = rest
        self._patch: Patch | None = None
        self._stopper: DaemonStopper | None = None
        self.cause: Any = lazily(LazyDaemonCause, self)
        # One context for all calls, as if it were one task: what a call has set, the next one sees.
        self.context = contextvars.copy_context()
        self.context.run(cause_var.set, self.cause)
        self.job: bridge.Run | None = None  # the call that is going on
        self.task: asyncio.Task[Any] | None = None  # where the call is waiting
        self.returned: asyncio.Future[None] | None = None  # for those who wait for the end of the call
        self.cancelled = False
        self.error: BaseException | None = None

    @property
    def logger(self) -> ObjectLogger:
        """The logger."""
        return self.subject.logger

    @property
    def memo(self) -> Any:
        """The memo of the object."""
        return self.subject.memo

    @property
    def resource(self) -> Resource:
        """What kind of object it is."""
        return self.subject.resource

    @property
    def body(self) -> Body:
        """The live body of the object."""
        return self.subject.body

    @property
    def object(self) -> bridge.Object:
        """The object as it is now."""
        return self.subject.object

    @property
    def stopper(self) -> DaemonStopper:
        """The flag by which it is asked to stop."""
        if self._stopper is None:
            self._stopper = DaemonStopper(self.rest)
        return self._stopper

    @property
    def stopped(self) -> Any:
        """The same as the function sees it."""
        return self.stopper.async_waiter if self.callee.is_async else self.stopper.sync_waiter

    @property
    def patch(self) -> Patch:
        """What the current call wants to change in the object."""
        if self._patch is None:
            self._patch = Patch(None, body=self.subject.body)
        return self._patch

    @property
    def patched(self) -> Patch | None:
        """The patch, if anybody was interested in it so far."""
        return self._patch

    def renew_patch(self, carry: bool) -> None:
        """Take an empty patch for the next call; carry the functions that could not be applied."""
        patch = self._patch
        if patch is None or (len(patch) == 0 and not patch.fns):
            return
        self._patch = self.cause.patch = Patch(None, body=self.subject.body, fns=patch.fns if carry else ())

    def release(self) -> None:
        """Let go what refers back to here, and so would wait for the garbage collector."""
        del self.cause, self.context
        if self._patch is not None:
            self._patch._release()

    def cancel(self) -> None:
        """Cancel the call. A function in a thread goes on, but what comes of it is ignored."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()


class _Rest:
    """Where a daemon of a test waits for its moments: the pulse is told when it does, and when not."""

    __slots__ = ("_pulse", "_run", "_time", "_waiting")

    def __init__(self, pulse: Pulse, time: VirtualTime, run: int) -> None:
        self._pulse = pulse
        self._time = time
        self._run = run
        self._waiting = False

    def _begin(self) -> None:
        self._waiting = True
        self._pulse.rested(self._run)

    def _end(self) -> None:
        # Told by whoever ends the rest: so nobody finds the daemon asleep that is about to wake up.
        if self._waiting:
            self._waiting = False
            self._pulse.awoke(self._run)

    def wait_in_thread(self, holds: Callable[[], bool], timeout: float | None) -> None:
        """Block the thread until it holds, at most `timeout` seconds."""
        self._begin()
        try:
            self._time.wait_in_thread(holds, timeout, self._end)
        finally:
            self._end()

    async def wait_in_loop(self, future: asyncio.Future[None], timeout: float | None) -> None:
        """Wait in the current event loop until the future is done, at most `timeout` seconds."""
        self._begin()
        try:
            await self._time.wait_in_loop(future, timeout, self._end)
        finally:
            self._end()

    def raised(self) -> None:
        """Let those who wait in threads look again."""
        self._end()
        self._time.tell()


class Daemons:
    """The daemons and timers of one operator."""

    def __init__(
        self,
        *,
        handlers: Sequence[ResourceHandler],
        callees: Sequence[Callee],
        settings: OperatorSettings,
        memories: Memories,
        indices: Mapping[str, Any],
        invoker: Invoker,
        answered: Callable[[bridge.Run | bridge.Signal], None],
    ) -> None:
        super().__init__()
        self._handlers = handlers
        self._callees = callees
        self._settings = settings
        self._memories = memories
        self._indices = indices
        self._invoker = invoker
        self._answered = answered
        # Of one object, each version of its kind has a body of its own.
        self._subjects: dict[tuple[str, Resource], Subject] = {}
        self._runs: dict[int, Run] = {}
        self._loop = asyncio.get_running_loop()
        self._lingering: set[asyncio.Task[None]] = set()
        self._pulse = pulse_var.get()

    def receivers(self) -> dict[type[Any], Callable[[Any], None]]:
        """Who takes which requests of the engine."""
        return {
            bridge.Run: self._receive_run,
            bridge.Delay: self._receive_delay,
            bridge.Signal: self._receive_signal,
            bridge.Refresh: self._receive_refresh,
            bridge.Dismiss: self._receive_dismiss,
        }

    def abandon(self) -> None:
        """Let the calls go that are still there at the end of the operator: they did not exit in time."""
        tasks = {run.task for run in self._runs.values() if run.task is not None}
        self._invoker.threads.abandon(tasks)

    def body(self, uid: str, resource: Resource) -> Body | None:
        """The live body of the object, if it has any: all handlers in that version share it."""
        subject = self._subjects.get((uid, resource))
        return subject.body if subject is not None else None

    def find(self, run: int) -> Run | None:
        """A daemon or a timer by its number."""
        return self._runs.get(run)

    def _recall(self, job: bridge.Run | bridge.Delay, object: bridge.Object) -> Run:
        run = self._runs.get(job.run)
        if run is None:
            uid = job.uid
            subject = self._subjects.get((uid, job.resource))
            if subject is None:
                subject = Subject(uid, object, job.resource, self._memories, self._settings)
                self._subjects[uid, job.resource] = subject
            subject.count += 1
            pulse = self._pulse
            rest = _Rest(pulse, pulse.time, job.run) if pulse is not None and pulse.time is not None else None
            run = self._runs[job.run] = Run(subject, self._callees[job.handler], self._indices, rest)
        return run

    def _receive_run(self, job: bridge.Run) -> None:
        # A daemon's call may go on for days: it is not to keep the state that it began with.
        run = self._recall(job, job.take_object())
        run.renew_patch(job.carry)
        run.job = job
        if self._pulse is not None:
            ends = isinstance(run.callee.handler, TimerHandler)
            (self._pulse.began if ends else self._pulse.awoke)(job.run)
        object = run.object
        name = f"{run.callee.label} of {full_name(object.namespace, object.name)}"
        task = start_task(self._loop, self._call(run, job), name=name, context=run.context)
        if run.job is job:
            run.task = task
            # A task can be cancelled before its first step.
            task.add_done_callback(lambda _: self._answer(run, job, None))
            if run.cancelled:
                task.cancel()

    async def _call(self, run: Run, job: bridge.Run) -> None:
        attempted: Attempted | None = None
        try:
            attempted = await self._invoker.attempt(
                run.callee, job.attempt, run.cause.arguments, run.subject.logger, stored=True
            )
        except asyncio.CancelledError:
            pass  # it is logged already, and this is the only thing that happens in this task
        finally:
            self._answer(run, job, attempted)

    def _answer(self, run: Run, job: bridge.Run, attempted: Attempted | None) -> None:
        if run.job is not job:
            return  # it is answered
        run.job = run.task = None
        if isinstance(run.callee.handler, TimerHandler):
            run.subject.body._release()
        if self._pulse is not None:
            self._pulse.ended(job.run)
            self._pulse.rested(job.run)
        if run.returned is not None and not run.returned.done():
            run.returned.set_result(None)
        if attempted is None:
            job.answer()
        else:
            try:
                if attempted.result is not None:
                    deliver(run.patch, [(run.callee.handler.id, attempted.result)])
                patch = run.patched
                if patch is None:
                    job.answer(attempted.settled)
                else:
                    job.answer(attempted.settled, patch if len(patch) else None, bool(patch.fns))
            except Exception as e:
                label = job.attempt.label
                run.subject.logger.exception(f"{label} has left a patch that cannot be sent, and ends: {e}")
                job.answer()
        self._answered(job)

    def _receive_delay(self, job: bridge.Delay) -> None:
        run = self._recall(job, job.object)
        handler = self._handlers[job.handler]
        try:
            delay = handler.initial_delay if isinstance(handler, SpawningHandler) else None
            job.complete(float(delay(**run.cause.kwargs)) if callable(delay) else delay)
        except Exception as e:
            run.subject.logger.exception(f"{handler} has failed to tell its initial delay, and ends: {e}")
            job.complete(None)

    def _receive_signal(self, job: bridge.Signal) -> None:
        awaited: list[Run] = []
        late: list[str] = []
        for number, reasons, cancel in job.signals:
            run = self._runs.get(number)
            if run is None:
                continue
            run.stopper.set(DaemonStoppingReason(reasons))
            if cancel:
                run.cancel()
            if reasons & ABANDONED:
                late.append(f"{run.callee.handler} did not exit in time.")
            elif run.job is not None:
                awaited.append(run)
        if awaited:
            task = self._loop.create_task(self._linger(job, awaited), name="daemon stopper")
            self._lingering.add(task)
            task.add_done_callback(self._lingering.discard)
        else:
            self._answered(job)
        # At last: warnings can be turned into errors, and the engine waits for the answer.
        for text in late:
            warnings.warn(text, ResourceWarning, stacklevel=1)

    async def _linger(self, job: bridge.Signal, runs: Sequence[Run]) -> None:
        """Give them a moment to exit: some time, or, if none is set, some turns of the loop."""
        try:
            timeout = self._settings.background.instant_exit_timeout
            if timeout is not None:
                futures = [self._return_of(run) for run in runs if run.job is not None]
                if futures:
                    await asyncio.wait(futures, timeout=timeout)
            else:
                for _ in range(self._settings.background.instant_exit_zero_time_cycles or 0):
                    if all(run.job is None for run in runs):
                        break
                    await asyncio.sleep(0)
        finally:
            self._answered(job)

    def _return_of(self, run: Run) -> asyncio.Future[None]:
        if run.returned is None or run.returned.done():
            run.returned = self._loop.create_future()
        return run.returned

    def _receive_refresh(self, job: bridge.Refresh) -> None:
        subject = None
        for number in job.runs:
            run = self._runs.get(number)
            if run is not None and run.subject is not subject:
                subject = run.subject
                subject.replace(job.object)

    def _receive_dismiss(self, job: bridge.Dismiss) -> None:
        run = self._runs.pop(job.run, None)
        if run is None:
            return
        run.stopper.set(DaemonStoppingReason(job.reasons))
        run.release()
        subject = run.subject
        subject.count -= 1
        key = subject.uid, subject.resource
        if subject.count == 0 and self._subjects.get(key) is subject:
            del self._subjects[key]
            subject.body._release()
