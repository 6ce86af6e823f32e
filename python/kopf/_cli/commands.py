"""Commands of the command line. They import what they need when they are called, so that `--help` is fast."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from kopf._cli import gc_tuning, object_commands
from kopf._cli.manifest_command import manifests
from kopf._cli.options import (
    NO_SOURCES,
    CLIControls,
    FileParamType,
    PathParamType,
    all_namespaces_option,
    check_scope,
    cluster_options,
    drop_overridden,
    handlers_options,
    leader_election_options,
    liveness_option,
    logging_options,
    logging_parameters,
    namespaces_option,
    option,
    output_option,
    selected_sources,
    status_address_option,
)
from kopf._cli.project_commands import check, completion, doctor, init, show_help
from kopf._intents import compatibility

if TYPE_CHECKING:
    import pathlib

    from kopf._cli.output import Output
    from kopf._objects.log_formats import LogFormat
    from kopf._runtime.running import PeeringCommand

DEV_PRIORITY = 666


def _print_version(context: click.Context, _: click.Parameter, is_set: bool) -> None:
    if is_set and not context.resilient_parsing:
        from kopf._runtime.bridge import __version__

        click.echo(f"kopf, version {__version__}")
        context.exit()


@click.group(
    name="kopf",
    context_settings={
        "auto_envvar_prefix": "KOPF",
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 100,
    },
    epilog="Exit codes: 0: success, or an operator is stopped by a signal; 1: failure; 2: wrong usage; "
    "3: a requested condition is not met, or an operator is running; "
    "130: stopped at once by a second Ctrl+C.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """Kubernetes operators in Python."""
    is_configurable = not context.ensure_object(CLIControls).is_complete
    if is_configurable and not compatibility.of_environment().ignores_config_file:
        from kopf._cli.config_file import read_defaults

        context.default_map = {**read_defaults(main), **(context.default_map or {})}
    # An operator has more to load.
    if context.invoked_subcommand != "run":
        gc_tuning.freeze_and_enable_gc()


@main.command()
@logging_options
@cluster_options
@all_namespaces_option("Serve the whole cluster.")
@namespaces_option("Serve these namespaces, e.g. 'team-*,!team-x'.")
@option("--standalone", is_flag=True, default=None, help="Ignore other operators.")
@option("--dev", is_flag=True, help=f"The same as --priority={DEV_PRIORITY}, to pause the others.")
@liveness_option
@status_address_option
@option(
    "-P",
    "--peering",
    "peering_name",
    envvar="KOPF_RUN_PEERING",
    metavar="NAME",
    help="Join this peering: pause while an operator with a higher priority is alive.",
)
@option("-p", "--priority", type=int, help="The priority in the peering; the highest one works.")
@leader_election_options
@handlers_options
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
    status_address: str | None,
    leader_elect: bool | None,
    lease_name: str | None,
    lease_namespace: str | None,
) -> None:
    """Run an operator.

    Load the files and the modules, and call their handlers.
    """
    legacy = os.environ.get("KOPF_RUN_NAMESPACE")
    namespaces, clusterwide = drop_overridden(namespaces=tuple(namespaces), clusterwide=clusterwide)
    namespaces = (*namespaces, legacy) if legacy else tuple(namespaces)
    check_scope(namespaces, clusterwide)
    paths, modules = selected_sources(paths, modules, None)

    from kopf._cli.event_loop import event_loop
    from kopf._runtime import loaders, operator, shutdown
    from kopf._runtime.default_registry import get_default_registry, set_default_registry

    compatible = compatibility.of_environment()
    # In other processes, such as tests, the handlers may be declared already.
    if controls.is_process and not paths and not modules and not compatible.accepts_any_arguments:
        raise click.UsageError(NO_SOURCES)
    if controls.registry is not None:
        set_default_registry(controls.registry)
    gc_tuning.freeze_and_enable_gc()
    try:
        loaders.preload(paths=paths, modules=modules)
    except KeyboardInterrupt:
        raise SystemExit(shutdown.FORCED_EXIT_CODE) from None
    if not get_default_registry().has_handlers and not compatible.starts_silently:
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
            status_address=status_address,
            leader_elect=leader_elect,
            lease_name=lease_name,
            lease_namespace=lease_namespace,
            registry=controls.registry,
            settings=controls.settings,
            stop_flag=controls.stop_flag,
            ready_flag=controls.ready_flag,
            vault=controls.vault,
            loop=loop,
        )


@main.command()
@logging_options
@cluster_options
@namespaces_option("The namespaces.")
@all_namespaces_option("Use the cluster-scoped peering object.")
@option("-i", "--id", type=str, default=None, help="The identity in the peering object.")
@option("--dev", is_flag=True, help=f"The same as --priority={DEV_PRIORITY}.")
@option(
    "-P",
    "--peering",
    "peering_name",
    required=True,
    envvar="KOPF_FREEZE_PEERING",
    metavar="NAME",
    help="The peering.",
)
@option("-p", "--priority", type=int, default=100, help="Operators with a lower priority are paused.")
@option("-t", "--lifetime", type=int, required=True, metavar="SECONDS", help="The duration.")
@option("-m", "--message", type=str, help="Accepted, but not used.")
@output_option
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
    output: Output,
) -> None:
    """Pause the operators of a peering."""
    check_scope(namespaces, clusterwide)
    from kopf._intents.settings import OperatorSettings

    settings = controls.settings if controls.settings is not None else OperatorSettings()
    settings.peering.lifetime = lifetime
    _run_peering_command(
        controls,
        "freeze",
        id,
        output,
        settings=settings,
        namespaces=namespaces,
        clusterwide=clusterwide,
        peering_name=peering_name,
        priority=DEV_PRIORITY if dev else priority,
    )


@main.command()
@logging_options
@cluster_options
@namespaces_option("The namespaces.")
@all_namespaces_option("Use the cluster-scoped peering object.")
@option("-i", "--id", type=str, default=None, help="The identity in the peering object.")
@option(
    "-P",
    "--peering",
    "peering_name",
    required=True,
    envvar="KOPF_RESUME_PEERING",
    metavar="NAME",
    help="The peering.",
)
@output_option
@click.make_pass_decorator(CLIControls, ensure=True)
def resume(
    controls: CLIControls,
    id: str | None,
    namespaces: Collection[str],
    clusterwide: bool,
    peering_name: str,
    output: Output,
) -> None:
    """Resume the operators of a peering."""
    check_scope(namespaces, clusterwide)
    _run_peering_command(
        controls,
        "resume",
        id,
        output,
        settings=controls.settings,
        namespaces=namespaces,
        clusterwide=clusterwide,
        peering_name=peering_name,
    )


def _run_peering_command(
    controls: CLIControls, command: PeeringCommand, identity: str | None, output: Output, **kwargs: Any
) -> None:
    from kopf._cli import peering_commands

    peering_commands.run(controls, command, identity, output, **kwargs)


@main.command()
@option("--kubeconfig", type=FileParamType, help="Write the kubeconfig to this file when it is ready.")
@option("--port", type=int, default=0, show_default="any free port", help="Port on 127.0.0.1.")
@option(
    "--controllers/--no-controllers",
    default=True,
    help="Imitate built-in controllers (Deployments, Jobs, Services).",
)
@output_option
def cluster(kubeconfig: pathlib.Path | None, port: int, controllers: bool, output: Output) -> None:
    """Run an embedded Kubernetes API server.

    It is for development and has no nodes. Without --kubeconfig, its kubeconfig is .kopf/kubeconfig in the
    current folder.
    """
    from kopf._cli import dev

    dev.serve(kubeconfig, port, controllers=controllers, output=output)


@main.command(name="dev")
@option(
    "--manifests",
    multiple=True,
    type=PathParamType(exists=True),
    help="Apply this file, or the files of this folder.",
)
@option("--reload", is_flag=True, help="Restart the operator when its files change.")
@option("--state", "state_file", type=FileParamType, help="Keep the objects in this file between runs.")
@option("--kubeconfig", type=FileParamType, help="Write the kubeconfig to this file when it is ready.")
@option("--port", type=int, default=0, show_default="any free port", help="Port on 127.0.0.1.")
@logging_parameters
@option(
    "-n", "--namespace", "namespaces", multiple=True, metavar="PATTERN", help="Serve these namespaces only."
)
@liveness_option
@output_option
@handlers_options
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
    log_refkey: str | None,
    log_prefix: bool | None,
    namespaces: Collection[str],
    liveness_endpoint: str | None,
    output: Output,
) -> None:
    """Run an operator with an embedded API server.

    It needs no cluster. The operator runs in another process, with options of `kopf run`. Without
    --kubeconfig, the kubeconfig for other clients is .kopf/kubeconfig in the current folder.
    """
    from kopf._cli import dev

    paths, modules = selected_sources(paths, modules)
    flags = {"--verbose": verbose, "--debug": debug, "--quiet": quiet}
    options = [flag for flag, is_set in flags.items() if is_set]
    options += [f"--namespace={pattern}" for pattern in namespaces] or ["--all-namespaces"]
    options += [f"--log-format={log_format.name.lower()}"]
    options += [f"--log-refkey={log_refkey}"] if log_refkey is not None else []
    options += ["--log-prefix" if log_prefix else "--no-log-prefix"] if log_prefix is not None else []
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
        output=output,
    )
    raise SystemExit(code)


main.add_command(check)
main.add_command(doctor)
main.add_command(init)
main.add_command(completion)
main.add_command(manifests)
main.add_command(object_commands.status)
main.add_command(object_commands.explain)
main.add_command(object_commands.release_finalizers)
main.add_command(object_commands.uninstall)
main.add_command(show_help)
