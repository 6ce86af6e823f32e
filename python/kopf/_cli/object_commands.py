"""Commands for operators in production: the states of their objects."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from kopf._cli.options import (
    all_namespaces_option,
    check_scope,
    cluster_options,
    drop_overridden,
    handlers_options,
    namespaces_option,
    option,
)

if TYPE_CHECKING:
    from kopf._cli.status import Output

kinds_option = option(
    "-k",
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="The kind, such as sites or sites.example.com.",
)


class StatesParamType(click.ParamType[tuple[str, ...]]):
    """States of objects, separated by commas."""

    name = "states"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Check and split the states."""
        if isinstance(value, tuple):
            return value
        from kopf._cli.status import STATES
        from kopf._objects.suggestions import did_you_mean

        states = tuple(state.strip() for state in str(value).split(",") if state.strip())
        for state in states:
            if state not in STATES:
                self.fail(f"There is no state {state!r}{did_you_mean(state, set(STATES))}", param, ctx)
        return states


@click.command()
@cluster_options
@all_namespaces_option("All namespaces; the same as without -n.")
@namespaces_option("The objects in these namespaces.")
@kinds_option
@option("--problems", "only_problems", is_flag=True, help="Only objects that need attention.")
@option("--watch", is_flag=True, help="Print the objects again when they change, until Ctrl+C.")
@option(
    "--fail-on",
    type=StatesParamType(),
    default=(),
    metavar="STATES",
    show_default=False,
    help="Exit with 3 if an object is in one of these states, e.g. stuck,failed.",
)
@option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "name"]),
    default="table",
    help="The output format.",
)
@handlers_options
def status(
    paths: Collection[str],
    modules: Collection[str],
    kinds: Collection[str],
    namespaces: Collection[str],
    clusterwide: bool,
    only_problems: bool,
    watch: bool,
    fail_on: tuple[str, ...],
    output: Output,
) -> None:
    """Show which objects are handled, and which are not.

    The states are those that the operator stores on the objects; the operator need not run. The kinds are
    those of the handlers in the files, or of -k. Startup, login and cleanup handlers are called, others are
    not. The cluster is only read.
    """
    from kopf._cli import status as implementation

    namespaces = selected_namespaces(namespaces, clusterwide)
    paths, modules = selected_sources(paths, modules, kinds)
    if watch and fail_on:
        raise click.UsageError("Either --watch or --fail-on can be used, not both.")
    options = implementation.Options(tuple(kinds), namespaces, output, only_problems, fail_on, watch)
    raise SystemExit(implementation.run(paths, modules, options))


def selected_namespaces(namespaces: Collection[str], clusterwide: bool) -> tuple[str, ...]:
    """The patterns of the namespaces; none for all."""
    namespaces, clusterwide = drop_overridden(namespaces=tuple(namespaces), clusterwide=clusterwide)
    check_scope(namespaces, clusterwide)
    return tuple(namespaces)


def selected_sources(
    paths: Collection[str], modules: Collection[str], kinds: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files and the modules of the operator; there must be some, or kinds."""
    paths, modules = drop_overridden(paths=tuple(paths), modules=tuple(modules))
    if not paths and not modules and not kinds:
        raise click.UsageError("Name the kinds (-k), or the files with the handlers, or their modules (-m).")
    return tuple(paths), tuple(modules)
