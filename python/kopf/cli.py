"""The command line. It owns options, their environment variables, and messages; commands themselves are
elsewhere, and are loaded when they are called: help and mistakes are shown at once.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

import kopf
from kopf._cli import gc_tuning
from kopf._objects.logging_types import LogFormat

if TYPE_CHECKING:
    import asyncio
    import pathlib

    from kopf._intents.registries import OperatorRegistry
    from kopf._intents.settings import OperatorSettings

DEV_PRIORITY = 666


@dataclass
class CLIControls:
    """What the commands get from those who call them, such as tests, and what these get from the commands.

    `is_process` is whether the process is only for the command: then it can be ended at once. `debug` and
    `json_logs` are those of the options.
    """

    ready_flag: Any = None
    stop_flag: Any = None
    vault: Any = None
    registry: OperatorRegistry | None = None
    settings: OperatorSettings | None = None
    loop: asyncio.AbstractEventLoop | None = None
    debug: bool = False
    json_logs: bool = False
    is_process: bool = False


# Every option shows the environment variable that sets it.
_option = functools.partial(click.option, show_envvar=True)


class LogFormatParamType(click.Choice[LogFormat]):
    """The formats of logs by their names, in any case."""

    def __init__(self) -> None:
        super().__init__(choices=list(LogFormat), case_sensitive=False)

    def normalize_choice(self, choice: Any, ctx: click.Context | None) -> str:
        """Names instead of values: the values are the formats themselves."""
        return (choice.name if isinstance(choice, LogFormat) else str(choice)).lower()


def logging_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Add the logging options to a command; the logging is configured before the command is called."""

    @_option("-v", "--verbose", is_flag=True, help="Log what Kopf itself does.")
    @_option("-d", "--debug", is_flag=True, help="The same, with the event loop and whole tracebacks.")
    @_option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
    @_option("--log-format", type=LogFormatParamType(), default="full", help="The format of log lines.")
    @_option(
        "--log-refkey", type=str, show_default="object", help="JSON key for the reference to the object."
    )
    @_option(
        "--log-prefix/--no-log-prefix",
        default=None,
        show_default="yes, except for JSON",
        help="Begin messages with the names of objects.",
    )
    @functools.wraps(fn)
    def wrapper(
        verbose: bool,
        debug: bool,
        quiet: bool,
        log_format: LogFormat,
        log_prefix: bool | None,
        log_refkey: str | None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        controls = click.get_current_context().ensure_object(CLIControls)
        controls.debug = debug
        controls.json_logs = log_format is LogFormat.JSON
        from kopf._runtime import loggers

        loggers.configure(
            debug=debug,
            verbose=verbose,
            quiet=quiet,
            log_format=log_format,
            log_refkey=log_refkey,
            log_prefix=log_prefix,
        )
        return fn(*args, **kwargs)

    return wrapper


def _is_compatible() -> bool:
    from kopf._intents.settings import COMPAT_1_45

    return COMPAT_1_45


class LivenessParamType(click.ParamType[str]):
    """The URL of the health checks."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check that the URL can be served."""
        import urllib.parse

        if _is_compatible():
            return value
        try:
            url = urllib.parse.urlsplit(str(value))
            is_valid = url.scheme == "http" and bool(url.netloc) and url.port != 0
        except ValueError:  # the port
            is_valid = False
        if not is_valid:
            self.fail(f"{value!r} is not a URL such as http://0.0.0.0:8080/healthz", param, ctx)
        return value


_liveness_option = _option(
    "-L",
    "--liveness",
    "liveness_endpoint",
    type=LivenessParamType(),
    metavar="URL",
    help="Serve health checks at this URL, e.g. http://0.0.0.0:8080/healthz.",
)


class HandlersParamType(click.ParamType[str]):
    """A file with handlers."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check that the file can be loaded."""
        from importlib.machinery import all_suffixes

        path = str(value)
        if _is_compatible():
            return path
        if os.path.isdir(path):
            self.fail(f"{path!r} is a directory: name its files, or use -m for a package.", param, ctx)
        if not os.path.exists(path):
            self.fail(f"There is no file {path!r}.", param, ctx)
        if not path.endswith(tuple(all_suffixes())):
            self.fail(f"{path!r} is not a Python file.", param, ctx)
        return path


@click.group(
    name="kopf",
    context_settings={
        "auto_envvar_prefix": "KOPF",
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 100,
    },
)
@click.version_option(version=kopf.__version__, prog_name="kopf")
@click.pass_context
def main(context: click.Context) -> None:
    """Kubernetes operators in Python."""
    # An operator has more to load.
    if context.invoked_subcommand != "run":
        gc_tuning.freeze_and_enable_gc()


def _check_scope(namespaces: Collection[str], clusterwide: bool) -> None:
    if namespaces and clusterwide:
        raise click.UsageError("Either --namespace or --all-namespaces can be used, not both.")


@main.command()
@logging_options
@_option("-A", "--all-namespaces", "clusterwide", is_flag=True, help="Serve the whole cluster.")
@_option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="PATTERN",
    help="Serve these namespaces, e.g. 'team-*,!team-x'.",
)
@_option("--standalone", is_flag=True, default=None, help="Ignore other operators.")
@_option("--dev", is_flag=True, help=f"The same as --priority={DEV_PRIORITY}, to pause the others.")
@_liveness_option
@_option(
    "-P",
    "--peering",
    "peering_name",
    envvar="KOPF_RUN_PEERING",
    metavar="NAME",
    help="Join this peering: pause while an operator with a higher priority is alive.",
)
@_option("-p", "--priority", type=int, help="The priority in the peering; the highest one works.")
@_option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Import this module.")
@click.argument("paths", nargs=-1, type=HandlersParamType())
@click.make_pass_decorator(CLIControls, ensure=True)
def run(
    controls: CLIControls,
    paths: Collection[str],
    modules: Collection[str],
    peering_name: str | None,
    priority: int | None,
    dev: bool | None,
    standalone: bool | None,
    namespaces: Collection[str],
    clusterwide: bool,
    liveness_endpoint: str | None,
) -> None:
    """Run an operator.

    The files and the modules are loaded, and the handlers in them are called.
    """
    legacy = os.environ.get("KOPF_RUN_NAMESPACE")
    namespaces = (*namespaces, legacy) if legacy else tuple(namespaces)
    _check_scope(namespaces, clusterwide)

    from kopf._cli.event_loop import event_loop
    from kopf._runtime import loaders, operator, shutdown
    from kopf._runtime.default_registry import get_default_registry, set_default_registry

    # In other processes, such as tests, the handlers may be declared already.
    if controls.is_process and not paths and not modules and not _is_compatible():
        raise click.UsageError("Name the files with the handlers, or their modules (-m).")
    if controls.registry is not None:
        set_default_registry(controls.registry)
    gc_tuning.freeze_and_enable_gc()
    try:
        loaders.preload(paths=paths, modules=modules)
    except KeyboardInterrupt:
        raise SystemExit(shutdown.FORCED_EXIT_CODE) from None
    if not get_default_registry().has_handlers and not _is_compatible():
        names = ", ".join([*paths, *modules]) or "the registry"
        import logging

        logging.getLogger("kopf._core.reactor.running").warning(
            f"No handlers are declared in {names}: the operator has nothing to do. Handlers are declared by "
            "decorators with arguments, such as @kopf.on.create('guests')."
        )
    gc_tuning.freeze_and_enable_gc()
    exit = shutdown.ProcessShutdown()
    if controls.is_process:
        shutdown.process_shutdown_var.set(exit)
    with contextlib.ExitStack() as stack:
        stack.callback(exit.wait)
        loop = stack.enter_context(event_loop(controls.loop))
        operator.run(
            standalone=standalone,
            namespaces=namespaces,
            clusterwide=clusterwide,
            priority=DEV_PRIORITY if dev else priority,
            peering_name=peering_name,
            liveness_endpoint=liveness_endpoint,
            registry=controls.registry,
            settings=controls.settings,
            stop_flag=controls.stop_flag,
            ready_flag=controls.ready_flag,
            vault=controls.vault,
            loop=loop,
        )


@main.command()
@logging_options
@_option("-n", "--namespace", "namespaces", multiple=True, metavar="PATTERN", help="In these namespaces.")
@_option("-A", "--all-namespaces", "clusterwide", is_flag=True, help="In the whole cluster.")
@_option("-i", "--id", type=str, default=None, help="On behalf of this identity.")
@_option("--dev", is_flag=True, help=f"The same as --priority={DEV_PRIORITY}.")
@_option(
    "-P",
    "--peering",
    "peering_name",
    required=True,
    envvar="KOPF_FREEZE_PEERING",
    metavar="NAME",
    help="The peering.",
)
@_option("-p", "--priority", type=int, default=100, help="Operators with a lower priority are paused.")
@_option("-t", "--lifetime", type=int, required=True, metavar="SECONDS", help="For how long.")
@_option("-m", "--message", type=str, help="Accepted, but not used.")
@click.make_pass_decorator(CLIControls, ensure=True)
def freeze(
    controls: CLIControls,
    id: str | None,
    message: str | None,
    lifetime: int,
    namespaces: Collection[str],
    clusterwide: bool,
    peering_name: str,
    dev: bool | None,
    priority: int,
) -> None:
    """Pause the operators of a peering."""
    _check_scope(namespaces, clusterwide)
    from kopf._intents.settings import OperatorSettings

    settings = controls.settings if controls.settings is not None else OperatorSettings()
    settings.peering.lifetime = lifetime
    _run_peering_command(
        controls,
        "freeze",
        id,
        settings=settings,
        namespaces=namespaces,
        clusterwide=clusterwide,
        peering_name=peering_name,
        priority=DEV_PRIORITY if dev else priority,
    )


@main.command()
@logging_options
@_option("-n", "--namespace", "namespaces", multiple=True, metavar="PATTERN", help="In these namespaces.")
@_option("-A", "--all-namespaces", "clusterwide", is_flag=True, help="In the whole cluster.")
@_option("-i", "--id", type=str, default=None, help="On behalf of this identity.")
@_option(
    "-P",
    "--peering",
    "peering_name",
    required=True,
    envvar="KOPF_RESUME_PEERING",
    metavar="NAME",
    help="The peering.",
)
@click.make_pass_decorator(CLIControls, ensure=True)
def resume(
    controls: CLIControls,
    id: str | None,
    namespaces: Collection[str],
    clusterwide: bool,
    peering_name: str,
) -> None:
    """Resume the operators of a peering."""
    _check_scope(namespaces, clusterwide)
    _run_peering_command(
        controls,
        "resume",
        id,
        settings=controls.settings,
        namespaces=namespaces,
        clusterwide=clusterwide,
        peering_name=peering_name,
    )


def _run_peering_command(
    controls: CLIControls, command: Literal["freeze", "resume"], identity: str | None, **kwargs: Any
) -> None:
    import asyncio
    import contextlib

    from kopf._cli.event_loop import event_loop
    from kopf._runtime import operator
    from kopf._runtime.identity import detect_own_id

    with event_loop(controls.loop) as loop:
        coroutine = operator.run_peering_command(
            command,
            identity=identity if identity is not None else detect_own_id(manual=True),
            registry=controls.registry,
            stop_flag=controls.stop_flag,
            ready_flag=controls.ready_flag,
            vault=controls.vault,
            **kwargs,
        )
        with contextlib.suppress(asyncio.CancelledError):
            if loop is not None:
                loop.run_until_complete(coroutine)
            else:
                asyncio.run(coroutine)


class PathParamType(click.Path):
    """A path of a file, as an object."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check and convert the path."""
        import pathlib

        return pathlib.Path(str(super().convert(value, param, ctx)))


FileParamType = PathParamType(dir_okay=False)


@main.command()
@_option("--kubeconfig", type=FileParamType, help="Write the kubeconfig to this file when it is ready.")
@_option("--port", type=int, default=0, show_default="any free port", help="Port on 127.0.0.1.")
@_option(
    "--controllers/--no-controllers",
    default=True,
    help="Imitate built-in controllers (Deployments, Jobs, Services).",
)
def cluster(kubeconfig: pathlib.Path | None, port: int, controllers: bool) -> None:
    """Run a Kubernetes API server in memory.

    It is for development and has no nodes.
    """
    from kopf._cli import dev

    dev.serve(kubeconfig, port, controllers=controllers)


@main.command(name="dev")
@_option(
    "--manifests",
    multiple=True,
    type=PathParamType(exists=True),
    help="Apply this file, or the files of this folder.",
)
@_option("--reload", is_flag=True, help="Start the operator again when its files change.")
@_option("--state", "state_file", type=FileParamType, help="Keep the objects in this file between runs.")
@_option("--kubeconfig", type=FileParamType, help="Write the kubeconfig to this file when it is ready.")
@_option("--port", type=int, default=0, show_default="any free port", help="Port on 127.0.0.1.")
@_option("-v", "--verbose", is_flag=True, help="Log what Kopf itself does.")
@_option("-d", "--debug", is_flag=True, help="The same, with the event loop and whole tracebacks.")
@_option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
@_option("--log-format", type=LogFormatParamType(), default="full", help="The format of log lines.")
@_option(
    "-n", "--namespace", "namespaces", multiple=True, metavar="PATTERN", help="Serve these namespaces only."
)
@_liveness_option
@_option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Import this module.")
@click.argument("paths", nargs=-1, type=HandlersParamType())
def develop(
    paths: Collection[str],
    modules: Collection[str],
    manifests: Collection[pathlib.Path],
    reload: bool,
    state_file: pathlib.Path | None,
    kubeconfig: pathlib.Path | None,
    port: int,
    verbose: bool,
    debug: bool,
    quiet: bool,
    log_format: LogFormat,
    namespaces: Collection[str],
    liveness_endpoint: str | None,
) -> None:
    """Run an operator with an API server in memory.

    No cluster is needed. The operator is another process, with the same options as of `kopf run`.
    """
    from kopf._cli import dev

    if not paths and not modules:
        raise click.UsageError("Name the files with the handlers, or their modules (-m).")
    flags = {"--verbose": verbose, "--debug": debug, "--quiet": quiet}
    options = [flag for flag, is_set in flags.items() if is_set]
    options += [f"--namespace={pattern}" for pattern in namespaces] or ["--all-namespaces"]
    options += [f"--log-format={log_format.name.lower()}"]
    options += [f"--liveness={liveness_endpoint}"] if liveness_endpoint else []
    code = dev.develop(
        paths,
        modules=modules,
        manifests=manifests,
        reload=reload,
        state_file=state_file,
        kubeconfig=kubeconfig,
        port=port,
        options=options,
    )
    raise SystemExit(code)
