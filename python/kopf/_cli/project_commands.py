"""Commands for authors of operators: checks, new projects, shell completion."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from kopf._cli.options import HandlersParamType, PathParamType, cluster_options, drop_overridden, option

if TYPE_CHECKING:
    import pathlib

SHELLS = ("bash", "zsh", "fish")


@click.command()
@cluster_options
@option("-A", "--all-namespaces", "clusterwide", is_flag=True, help="Check the whole cluster.")
@option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="PATTERN",
    help="Check the permissions in these namespaces.",
)
@option("--offline", is_flag=True, help="Check only the declarations, and no cluster.")
@option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="Import this module.")
@click.argument("paths", nargs=-1, type=HandlersParamType())
def check(
    paths: Collection[str],
    modules: Collection[str],
    namespaces: Collection[str],
    clusterwide: bool,
    offline: bool,
) -> None:
    """Check an operator without running it.

    Load the files and the modules, and check the declarations, the names of resources, and the permissions
    of the current user. The exit code is 1 if there are problems.
    """
    from kopf._cli import check as implementation

    namespaces, clusterwide = drop_overridden(namespaces=tuple(namespaces), clusterwide=clusterwide)
    if namespaces and clusterwide:
        raise click.UsageError("Either --namespace or --all-namespaces can be used, not both.")
    paths, modules = drop_overridden(paths=tuple(paths), modules=tuple(modules))
    if not paths and not modules:
        raise click.UsageError("Name the files with the handlers, or their modules (-m).")
    raise SystemExit(implementation.check(paths, modules, namespaces, offline=offline))


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
