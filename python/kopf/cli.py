"""The command line. It owns options, their environment variables, and messages; commands themselves are
elsewhere, and are loaded when they are called: help and mistakes are shown at once.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

import kopf
from kopf._kits import sweeping
from kopf._objects.logformats import LogFormat

if TYPE_CHECKING:
    import asyncio
    import pathlib

    from kopf._intents.registries import OperatorRegistry
    from kopf._intents.settings import OperatorSettings

DEV_PRIORITY = 666


@dataclass
class CLIControls:
    """What is passed to the commands by those who call them in a process of theirs, e.g. by tests."""

    ready_flag: Any = None
    stop_flag: Any = None
    vault: Any = None
    registry: OperatorRegistry | None = None
    settings: OperatorSettings | None = None
    loop: asyncio.AbstractEventLoop | None = None


class LogFormatParamType(click.Choice[LogFormat]):
    """The formats of logs by their names, in any case."""

    def __init__(self) -> None:
        super().__init__(choices=list(LogFormat), case_sensitive=False)

    def normalize_choice(self, choice: Any, ctx: click.Context | None) -> str:
        """Names instead of values: the values are the formats themselves."""
        return (choice.name if isinstance(choice, LogFormat) else str(choice)).lower()


def logging_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Add the logging options to a command; the logging is configured before the command is called."""

    @click.option("-v", "--verbose", is_flag=True, help="Log what Kopf itself does, too.")
    @click.option("-d", "--debug", is_flag=True, help="Log also what the event loop does.")
    @click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
    @click.option("--log-format", type=LogFormatParamType(), default="full", help="How log lines look.")
    @click.option("--log-refkey", type=str, help="The key of objects in JSON logs.")
    @click.option("--log-prefix/--no-log-prefix", default=None, help="Whether to begin with object names.")
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
        from kopf._kits import deferring

        deferring.defer()
        from kopf._runtime import logs

        logs.configure(
            debug=debug,
            verbose=verbose,
            quiet=quiet,
            log_format=log_format,
            log_refkey=log_refkey,
            log_prefix=log_prefix,
        )
        return fn(*args, **kwargs)

    return wrapper


@click.group(name="kopf", context_settings={"auto_envvar_prefix": "KOPF"})
@click.version_option(version=kopf.__version__, prog_name="kopf")
@click.pass_context
def main(context: click.Context) -> None:
    """Kubernetes operators in Python."""
    # An operator has more to load.
    if context.invoked_subcommand != "run":
        sweeping.settle()


@main.command()
@logging_options
@click.option("-A", "--all-namespaces", "clusterwide", is_flag=True, help="Serve the whole cluster.")
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Serve these namespaces (patterns).")
@click.option("--standalone", is_flag=True, default=None, help="Ignore other operators.")
@click.option("--dev", is_flag=True, help=f"The same as --priority={DEV_PRIORITY}, to win over others.")
@click.option("-L", "--liveness", "liveness_endpoint", type=str, help="The URL where the health is reported.")
@click.option("-P", "--peering", "peering_name", envvar="KOPF_RUN_PEERING", help="The peering object.")
@click.option("-p", "--priority", type=int, help="Of several operators, the one with the highest works.")
@click.option("-m", "--module", "modules", multiple=True, help="Import this module.")
@click.argument("paths", nargs=-1)
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
    """Run an operator: load the files and the modules, and serve what they declare."""
    legacy = os.environ.get("KOPF_RUN_NAMESPACE")
    namespaces = (*namespaces, legacy) if legacy else tuple(namespaces)
    if namespaces and clusterwide:
        raise click.UsageError("Either --namespace or --all-namespaces can be used, not both.")

    from kopf._kits.loops import proper_loop
    from kopf._runtime import loading, operator
    from kopf._runtime.defaults import set_default_registry

    if controls.registry is not None:
        set_default_registry(controls.registry)
    sweeping.settle()
    loading.preload(paths=paths, modules=modules)
    sweeping.settle()
    with proper_loop(controls.loop) as loop:
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
@click.option("-n", "--namespace", "namespaces", multiple=True, help="In these namespaces (patterns).")
@click.option("-A", "--all-namespaces", "clusterwide", is_flag=True, help="In the whole cluster.")
@click.option("-i", "--id", type=str, default=None, help="On behalf of this identity.")
@click.option("--dev", is_flag=True, help=f"The same as --priority={DEV_PRIORITY}.")
@click.option(
    "-P",
    "--peering",
    "peering_name",
    required=True,
    envvar="KOPF_FREEZE_PEERING",
    help="The peering object.",
)
@click.option("-p", "--priority", type=int, default=100, required=True, help="100 if it is not given.")
@click.option("-t", "--lifetime", type=int, required=True, help="For how long (seconds).")
@click.option("-m", "--message", type=str, help="Accepted, but not used.")
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
    from kopf._intents.settings import OperatorSettings

    settings = controls.settings if controls.settings is not None else OperatorSettings()
    settings.peering.lifetime = lifetime
    _run_errand(
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
@click.option("-n", "--namespace", "namespaces", multiple=True, help="In these namespaces (patterns).")
@click.option("-A", "--all-namespaces", "clusterwide", is_flag=True, help="In the whole cluster.")
@click.option("-i", "--id", type=str, default=None, help="On behalf of this identity.")
@click.option(
    "-P",
    "--peering",
    "peering_name",
    required=True,
    envvar="KOPF_RESUME_PEERING",
    help="The peering object.",
)
@click.make_pass_decorator(CLIControls, ensure=True)
def resume(
    controls: CLIControls,
    id: str | None,
    namespaces: Collection[str],
    clusterwide: bool,
    peering_name: str,
) -> None:
    """Let the operators of a peering work again."""
    _run_errand(
        controls,
        "resume",
        id,
        settings=controls.settings,
        namespaces=namespaces,
        clusterwide=clusterwide,
        peering_name=peering_name,
    )


def _run_errand(
    controls: CLIControls, errand: Literal["freeze", "resume"], identity: str | None, **kwargs: Any
) -> None:
    import asyncio
    import contextlib

    from kopf._kits.loops import proper_loop
    from kopf._runtime import operator
    from kopf._runtime.identity import detect_own_id

    with proper_loop(controls.loop) as loop:
        coroutine = operator.run_errand(
            errand,
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
@click.option("--kubeconfig", type=FileParamType, help="Write the kubeconfig here when it is ready.")
@click.option("--port", type=int, default=0, help="Of loopback; any free one by default.")
@click.option("--controllers/--no-controllers", default=True, help="Whether deployments get pods, and so on.")
def cluster(kubeconfig: pathlib.Path | None, port: int, controllers: bool) -> None:
    """Run a cluster in memory: an API server for development, with no nodes."""
    from kopf._kits import dev

    dev.serve(kubeconfig, port, controllers=controllers)


@main.command(name="dev")
@click.option(
    "--manifests",
    multiple=True,
    type=PathParamType(exists=True),
    help="Apply this file, or the files of this folder.",
)
@click.option("--reload", is_flag=True, help="Start the operator again when its files change.")
@click.option("--state", "state_file", type=FileParamType, help="Keep the objects here between runs.")
@click.option("--kubeconfig", type=FileParamType, help="Write the kubeconfig here when it is ready.")
@click.option("--port", type=int, default=0, help="Of loopback; any free one by default.")
@click.option("-v", "--verbose", is_flag=True, help="Log what Kopf itself does, too.")
@click.option("-q", "--quiet", is_flag=True, help="Log only warnings and errors.")
@click.argument("paths", nargs=-1, required=True)
def develop(
    paths: Collection[str],
    manifests: Collection[pathlib.Path],
    reload: bool,
    state_file: pathlib.Path | None,
    kubeconfig: pathlib.Path | None,
    port: int,
    verbose: bool,
    quiet: bool,
) -> None:
    """Run an operator on a cluster in memory: no real one is needed."""
    from kopf._kits import dev

    code = dev.develop(
        paths,
        manifests=manifests,
        reload=reload,
        state_file=state_file,
        kubeconfig=kubeconfig,
        port=port,
        options=[*(["--verbose"] if verbose else []), *(["--quiet"] if quiet else [])],
    )
    raise SystemExit(code)
