"""Options of the command line: parameter types, logging options, and the controls for embedding commands."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kopf._intents import compatibility
from kopf._objects.log_formats import LogFormat

if TYPE_CHECKING:
    import asyncio
    import pathlib

    from kopf._intents.registries import OperatorRegistry
    from kopf._intents.settings import OperatorSettings


@dataclass
class CLIControls:
    """Arguments of commands from their callers, such as tests, and results for the callers.

    `is_process` is whether the process is only for the command: then it can be ended at once. `is_complete`
    is whether all options are in the arguments, and none in `pyproject.toml`. `debug` and `json_logs` are
    those of the options.
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
    is_complete: bool = False


# Every option shows the environment variable that sets it.
option = functools.partial(click.option, show_envvar=True)


if TYPE_CHECKING:
    TextParamType = click.ParamType[str]
else:  # it is not generic before click 8.4
    TextParamType = click.ParamType


class LogFormatParamType(click.Choice[LogFormat]):
    """The formats of logs by their names, in any case."""

    def __init__(self) -> None:
        super().__init__(choices=list(LogFormat), case_sensitive=False)

    def normalize_choice(self, choice: Any, ctx: click.Context | None) -> str:
        """Names instead of values: the values are the formats themselves."""
        return (choice.name if isinstance(choice, LogFormat) else str(choice)).lower()


LOGGING_PARAMETERS = (
    option("-v", "--verbose", is_flag=True, help="Log what Kopf itself does."),
    option("-d", "--debug", is_flag=True, help="The same, with requests, the event loop, whole tracebacks."),
    option("-q", "--quiet", is_flag=True, help="Log only warnings and errors."),
    option("--log-format", type=LogFormatParamType(), default="full", help="The format of log lines."),
    option("--log-refkey", type=str, show_default="object", help="JSON key for the reference to the object."),
    option(
        "--log-prefix/--no-log-prefix",
        default=None,
        show_default="yes, except for JSON",
        help="Begin messages with the names of objects.",
    ),
)


def logging_parameters(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Add the logging options to a command, as its arguments."""
    for parameter in reversed(LOGGING_PARAMETERS):
        fn = parameter(fn)
    return fn


def logging_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Add the logging options to a command; the logging is configured before the command is called."""

    @logging_parameters
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


def cluster_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the cluster to a command; the environment is changed while the command runs."""

    @option("--kubeconfig", type=ExistingFileParamType, help="Connect to the cluster of this kubeconfig.")
    @option("--context", type=str, metavar="NAME", help="Use this context of the kubeconfig.")
    @functools.wraps(fn)
    def wrapper(kubeconfig: pathlib.Path | None, context: str | None, *args: Any, **kwargs: Any) -> Any:
        if kubeconfig is None and context is None:
            return fn(*args, **kwargs)
        from kopf._cli.kubeconfigs import selected_cluster

        with selected_cluster(kubeconfig, context):
            return fn(*args, **kwargs)

    return wrapper


def namespaces_option(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a decorator that adds the option for namespaces to a command, with this help."""
    return option("-n", "--namespace", "namespaces", multiple=True, metavar="PATTERN", help=help)


def all_namespaces_option(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a decorator that adds the option for all namespaces to a command, with this help."""
    return option("-A", "--all-namespaces", "clusterwide", is_flag=True, help=help)


def check_scope(namespaces: Collection[str], clusterwide: bool) -> None:
    """Check the values of the options for the operator's namespaces, which exclude each other."""
    if namespaces and clusterwide:
        raise click.UsageError("Either --namespace or --all-namespaces can be used, not both.")


output_option = option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="The output format."
)


def handlers_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Add the modules and the files with the handlers to a command."""
    modules = option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Import this module.")
    return modules(click.argument("paths", nargs=-1, type=HandlersParamType())(fn))


def drop_overridden(**values: Any) -> tuple[Any, ...]:
    """The values of alternative parameters, in their order, without those of the configuration file if
    others of them are set on the command line or in the environment.
    """
    context = click.get_current_context()
    configured = {
        name: context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT_MAP for name in values
    }
    if any(value and not configured[name] for name, value in values.items()):
        values = {name: type(value)() if configured[name] else value for name, value in values.items()}
    return tuple(values.values())


NO_SOURCES = "Name the files with the handlers, or their modules (-m)."


def selected_sources(
    paths: Collection[str], modules: Collection[str], missing: str | None = NO_SOURCES
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files and the modules of the operator. `missing` is the error if there are none; None: no error."""
    paths, modules = drop_overridden(paths=tuple(paths), modules=tuple(modules))
    if missing is not None and not paths and not modules:
        raise click.UsageError(missing)
    return tuple(paths), tuple(modules)


def selected_namespaces(namespaces: Collection[str], clusterwide: bool) -> tuple[str, ...]:
    """The patterns of the namespaces; none for all."""
    namespaces, clusterwide = drop_overridden(namespaces=tuple(namespaces), clusterwide=clusterwide)
    check_scope(namespaces, clusterwide)
    return tuple(namespaces)


def _with_address(text: str) -> str:
    from kopf._cli.message_addresses import address_line  # only failed commands need it

    return f"{text}{address_line(text)}"


class LivenessParamType(TextParamType):
    """The URL of the health checks."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check that the URL can be served."""
        import urllib.parse

        if compatibility.of_environment().accepts_any_arguments:
            return value
        try:
            url = urllib.parse.urlsplit(str(value))
            is_valid = url.scheme == "http" and bool(url.netloc) and url.port != 0
        except ValueError:  # the port
            is_valid = False
        if not is_valid:
            self.fail(
                _with_address(f"{value!r} is not a URL such as http://0.0.0.0:8080/healthz"), param, ctx
            )
        return value


liveness_option = option(
    "-L",
    "--liveness",
    "liveness_endpoint",
    type=LivenessParamType(),
    metavar="URL",
    help="Serve health checks at this URL, e.g. http://0.0.0.0:8080/healthz.",
)


class StatusAddressParamType(TextParamType):
    """The host and the port of the status endpoints."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check that there is a host and a port."""
        if compatibility.of_environment().has_no_health_checks:
            self.fail("Kopf 1.45 has no such option: omit it, or unset KOPF_COMPAT", param, ctx)
        host, _, port = str(value).rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
            self.fail(_with_address(f"{value!r} is not an address such as 0.0.0.0:8080"), param, ctx)
        return value


status_address_option = option(
    "--status-address",
    type=StatusAddressParamType(),
    metavar="HOST:PORT",
    help="Serve /livez, /readyz, /startupz, /statusz, /streams and /metrics here.",
)


def leader_election_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of leader election to a command, as its arguments."""

    def check(context: click.Context, param: click.Parameter, value: Any) -> Any:
        if value is not None and compatibility.of_environment().has_no_leader_election:
            raise click.BadParameter(
                "Kopf 1.45 has no such option: omit it, or unset KOPF_COMPAT", context, param
            )
        return value

    for parameter in (
        option(
            "--lease-namespace",
            metavar="NAME",
            callback=check,
            help="The namespace of the Lease; by default, that of the pod or of the kubeconfig.",
        ),
        option(
            "--lease",
            "lease_name",
            envvar="KOPF_RUN_LEASE",
            metavar="NAME",
            callback=check,
            help="The Lease that all replicas share, and no other operator uses.",
        ),
        option(
            "--leader-elect/--no-leader-elect",
            default=None,
            show_default="no",
            callback=check,
            help="Work only while this replica is the leader.",
        ),
    ):
        fn = parameter(fn)
    return fn


class HandlersParamType(TextParamType):
    """A file with handlers."""

    name = "path"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """Let the shell complete names of files."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check that the file can be loaded."""
        from importlib.machinery import all_suffixes

        path = str(value)
        if compatibility.of_environment().accepts_any_arguments:
            return path
        if os.path.isdir(path):
            self.fail(f"{path!r} is a directory: name its files, or use -m for a package.", param, ctx)
        if not os.path.exists(path):
            self.fail(_with_address(f"There is no file {path!r}."), param, ctx)
        if not path.endswith(tuple(all_suffixes())):
            self.fail(f"{path!r} is not a Python file.", param, ctx)
        return path


class PathParamType(click.Path):
    """A path of a file, as an object."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Check and convert the path."""
        import pathlib

        return pathlib.Path(str(super().convert(value, param, ctx)))


FileParamType = PathParamType(dir_okay=False)
ExistingFileParamType = PathParamType(dir_okay=False, exists=True)
