"""`KopfRunner`: a command of the command line in a thread of a test."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from types import TracebackType
from typing import Any, Literal

import click.testing

from kopf._intents.handlers import Handler
from kopf._intents.registries import OperatorRegistry
from kopf._intents.settings import OperatorSettings
from kopf._objects.credentials import OnlyCredentials
from kopf._runtime.errors import error_observer_var
from kopf._runtime.preloading import load_modules
from kopf._runtime.work_tracking import work_tracker_var
from kopf._testing.cluster import Cluster, kubeconfig_environment
from kopf._testing.idle_tracker import IdleTracker
from kopf._testing.observed_selector import new_event_loop

# In frozen time; otherwise, the default is to wait without a limit.
STOP_TIMEOUT = 30.0


class KopfRunner(contextlib.AbstractContextManager["KopfRunner"]):
    """Runs a command in the background for the duration of the `with` block, and then stops it.

    The arguments are those of `click.testing.CliRunner.invoke()`, the first one is a list of arguments of
    the command. `reraise` is whether errors of the command are raised on exit from the block, and so is the
    first exception of a handler that is no `Exception`, such as that of `pytest.fail()`. `timeout` is
    how long the command can be stopping (seconds); if it takes longer, it is an error. With a `cluster`, the
    command connects only to that one: the results of login handlers are not used. The properties wait until
    the command has finished: use them only after the block.

    Args:
        *args: The arguments of `click.testing.CliRunner.invoke()`: the first one is a list of arguments of
            the command.
        reraise: Whether errors of the command, and outcomes of tests in handlers, are raised on exit from the
            block.
        timeout: The timeout of the exit of the command, in seconds; None: no timeout.
        registry: The registry of the operator; by default, the default one.
        settings: The settings of the operator; by default, new ones.
        cluster: The only cluster to which the command connects; by default, as usual.
        **kwargs: The keyword arguments of `click.testing.CliRunner.invoke()`.
    """

    def __init__(
        self,
        *args: Any,
        reraise: bool = True,
        timeout: float | None = None,
        registry: OperatorRegistry | None = None,
        settings: OperatorSettings | None = None,
        cluster: Cluster | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.args = args
        self.kwargs = kwargs
        self.cluster = cluster
        self.reraise = reraise
        self.timeout = timeout
        self.registry = registry
        self.settings = settings
        self._stop = threading.Event()
        self._ready = threading.Event()  # of the thread, not of the operator
        load_modules()
        self._thread = threading.Thread(target=self._target)
        self._clock_control = cluster.clock if cluster is not None and cluster.kind == "embedded" else None
        self._tracker = IdleTracker(self._clock_control.clock if self._clock_control is not None else None)
        self._clock_registration = contextlib.ExitStack()
        self._future: concurrent.futures.Future[click.testing.Result] = concurrent.futures.Future()
        self._test_outcome: BaseException | None = None

    def __repr__(self) -> str:
        state = "finished" if self._future.done() else "running" if self._thread.is_alive() else "not started"
        return f"<{type(self).__name__}: {state}, {self.args!r}>"

    def __enter__(self) -> KopfRunner:
        self._tracker.thread_starts()
        if self._clock_control is not None:
            self._clock_registration.enter_context(self._clock_control.track(self._tracker))
        try:
            self._thread.start()
            self._ready.wait()
        except BaseException:  # Ctrl+C, or the timeout of the test
            self._stop.set()
            self._clock_registration.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> Literal[False]:
        self._stop.set()
        try:
            if self._clock_control is not None:
                stop_timeout = self.timeout if self.timeout is not None else STOP_TIMEOUT
                self._clock_control.advance_until(lambda: not self._thread.is_alive(), stop_timeout)
            self._thread.join(timeout=self.timeout)
        finally:
            self._clock_registration.close()
        if self._thread.is_alive():
            raise Exception("The operator didn't stop, still running.")

        result = self._future.result()  # raises what went wrong with the command's environment, if anything
        error = result.exception if result.exception is not None else self._test_outcome
        if self.reraise and error is not None:
            if exc_val is not None:
                raise error from exc_val
            raise error
        return False

    def _on_handler_error(self, _: Handler, error: BaseException) -> None:
        """Keep the outcome of a test, such as `pytest.fail()`: it must not be only a line of the log."""
        is_outcome = not isinstance(error, (Exception, asyncio.CancelledError))
        if is_outcome and self._test_outcome is None:
            self._test_outcome = error

    def _target(self) -> None:
        from kopf._cli import commands
        from kopf._cli.options import CLIControls

        if self._clock_control is not None:
            work_tracker_var.set(self._tracker)
        error_observer_var.set(self._on_handler_error)
        loop, selector = new_event_loop()
        asyncio.set_event_loop(loop)
        self._tracker.observe(selector)
        self._ready.set()
        try:
            controls = CLIControls(
                registry=self.registry,
                settings=self.settings,
                stop_flag=self._stop,
                loop=loop,
            )
            if self.cluster is not None:
                controls.vault = OnlyCredentials({"cluster": self.cluster.connection})
            runner = click.testing.CliRunner()
            kwargs = self.kwargs
            if self.cluster is not None:
                env = {**(kwargs.get("env") or {}), **kubeconfig_environment(self.cluster)}
                kwargs = {**kwargs, "env": env}
            result = runner.invoke(commands.main, *self.args, **kwargs, obj=controls)
        except BaseException as e:
            self._future.set_exception(e)
        else:
            self._future.set_result(result)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            self._tracker.thread_ends()

    @property
    def future(self) -> concurrent.futures.Future[click.testing.Result]:
        """The future result of the command."""
        return self._future

    @property
    def output(self) -> str:
        """All the output, as it was seen in a terminal."""
        return self._future.result().output

    @property
    def stdout(self) -> str:
        """The standard output."""
        return self._future.result().stdout

    @property
    def stdout_bytes(self) -> bytes:
        """The standard output, not decoded."""
        return self._future.result().stdout_bytes

    @property
    def stderr(self) -> str:
        """The standard error, with the logs."""
        return self._future.result().stderr

    @property
    def stderr_bytes(self) -> bytes:
        """The standard error, not decoded."""
        return self._future.result().stderr_bytes or b""

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return self._future.result().exit_code

    @property
    def exception(self) -> BaseException | None:
        """The error of the command, if any."""
        return self._future.result().exception

    @property
    def exc_info(self) -> Any:
        """The error of the command with its type and traceback, or what else has ended it."""
        return self._future.result().exc_info
