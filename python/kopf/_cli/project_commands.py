"""Commands for authors of operators: checks, new projects, shell completion."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from kopf._cli.object_commands import coordination_options
from kopf._cli.options import (
    NO_SOURCES,
    PathParamType,
    all_namespaces_option,
    cluster_options,
    handlers_options,
    namespaces_option,
    option,
    output_option,
    selected_namespaces,
    selected_sources,
)

if TYPE_CHECKING:
    import pathlib

    from kopf._cli.cluster_session import Coordination
    from kopf._cli.output import Output

SHELLS = ("bash", "zsh", "fish")


@click.command()
@cluster_options
@all_namespaces_option("Check the whole cluster.")
@namespaces_option("Check the permissions in these namespaces.")
@option("--offline", is_flag=True, help="Check only the declarations; call no handlers, check no cluster.")
@coordination_options
@output_option
@handlers_options
def check(
    paths: Collection[str],
    modules: Collection[str],
    namespaces: Collection[str],
    clusterwide: bool,
    offline: bool,
    output: Output,
    coordination: Coordination,
) -> None:
    """Check an operator without serving its resources.

    Load the files and the modules, call the startup, login and cleanup handlers, and check the declarations,
    the names of resources, and the permissions. The exit code is 1 if there are problems.
    """
    from kopf._cli import check as implementation

    namespaces = selected_namespaces(namespaces, clusterwide)
    paths, modules = selected_sources(paths, modules)
    code = implementation.check(
        paths, modules, namespaces, offline=offline, output=output, coordination=coordination
    )
    raise SystemExit(code)


@click.command()
@cluster_options
@all_namespaces_option("Check the whole cluster; the same as without -n.")
@namespaces_option("Check these namespaces.")
@option("--as-manifest", is_flag=True, help="Print the needed permissions as Roles, and check nothing.")
@option("--strict", is_flag=True, help="Exit with 1 on warnings, too.")
@coordination_options
@output_option
@handlers_options
def doctor(
    paths: Collection[str],
    modules: Collection[str],
    namespaces: Collection[str],
    clusterwide: bool,
    as_manifest: bool,
    strict: bool,
    output: Output,
    coordination: Coordination,
) -> None:
    """Check whether the cluster is ready for an operator.

    The server with its clock and, for the handlers in the files, all that `kopf check` finds: declarations,
    names of resources, permissions; and also CRDs, schemas, the lease, and the state on the objects. Startup,
    login and cleanup handlers are called, others are not. The cluster is only read. The exit code is 1 if
    anything fails.
    """
    from kopf._cli import doctor as implementation

    namespaces = selected_namespaces(namespaces, clusterwide)
    paths, modules = selected_sources(paths, modules, NO_SOURCES if as_manifest else None)
    options = implementation.Options(namespaces, as_manifest, strict, output, coordination)
    raise SystemExit(implementation.run(paths, modules, options))


@click.command()
@option("--kind", default="Guest", help="The kind of the custom resource, e.g. CacheCluster.")
@option("--plural", show_default="from the kind", help="The plural name of the resource.")
@option("--group", default="example.com", help="The API group of the resource.")
@click.argument("folder", type=PathParamType(file_okay=False))
def init(folder: pathlib.Path, kind: str, plural: str | None, group: str) -> None:
    """Create the project of an operator in a folder.

    It has a CRD, a handler, a test, and a deployment. Existing files are never changed.
    """
    from kopf._cli import new_project

    new_project.create_project(folder, kind=kind, plural=plural, group=group)


@click.command(name="help")
@click.argument("command", required=False)
@click.pass_context
def show_help(context: click.Context, command: str | None) -> None:
    """Show the help of a command, or the list of commands."""
    root = context.find_root()
    if command is None:
        click.echo(root.get_help())
        return
    group = root.command
    found = group.get_command(root, command) if isinstance(group, click.Group) else None
    if found is None:
        raise click.UsageError(f"No such command {command!r}.")
    click.echo(found.get_help(click.Context(found, info_name=command, parent=root)))


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    For bash: eval "$(kopf completion bash)"
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    click.echo(script(context.find_root().command, {}, "kopf", "_KOPF_COMPLETE").source())
