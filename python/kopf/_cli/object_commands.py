"""Commands for operators in production: the states of their objects, and their removal."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import click

from kopf._cli.options import (
    ExistingFileParamType,
    all_namespaces_option,
    cluster_options,
    handlers_options,
    namespaces_option,
    option,
    selected_namespaces,
    selected_sources,
)

if TYPE_CHECKING:
    import pathlib

    from kopf._cli.cluster_session import Coordination
    from kopf._cli.explanation import Event
    from kopf._cli.explanation import Output as ExplanationOutput
    from kopf._cli.status import Output

NO_KINDS = "Name the kinds (-k), or the files with the handlers, or their modules (-m)."

kinds_option = option(
    "-k",
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="The kind, such as sites or sites.example.com.",
)
output_option = option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "name"]),
    default="table",
    help="The output format.",
)


def coordination_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the operator by which other replicas are noticed, as the argument `coordination`."""
    from functools import wraps

    @wraps(fn)
    def with_coordination(
        *args: Any,
        lease_name: str | None,
        lease_namespace: str | None,
        peering_name: str | None,
        **kwargs: Any,
    ) -> Any:
        from kopf._cli.cluster_session import Coordination

        given = Coordination(lease_name, lease_namespace, peering_name)
        return fn(*args, coordination=given, **kwargs)

    for parameter in (
        option(
            "--peering",
            "peering_name",
            envvar="KOPF_RUN_PEERING",
            metavar="NAME",
            help="The peering of the operator, if its option --peering names it.",
        ),
        option(
            "--lease-namespace",
            envvar="KOPF_RUN_LEASE_NAMESPACE",
            metavar="NAME",
            help="The namespace of the Lease; by default, that of the pod or of the kubeconfig.",
        ),
        option(
            "--lease",
            "lease_name",
            envvar="KOPF_RUN_LEASE",
            metavar="NAME",
            help="The Lease of the leader election, if the option --lease of the operator names it.",
        ),
    ):
        with_coordination = parameter(with_coordination)
    return with_coordination


# Not from the environment: it would confirm each command.
apply_option = click.option(
    "--yes",
    "apply",
    is_flag=True,
    allow_from_autoenv=False,
    help="Apply the changes; without it, nothing is written.",
)
force_option = click.option(
    "--force",
    is_flag=True,
    allow_from_autoenv=False,
    help="Do it although an operator of the peering, or a leader, is running.",
)


if TYPE_CHECKING:
    _StatesParamType = click.ParamType[tuple[str, ...]]
else:  # it is not generic before click 8.4
    _StatesParamType = click.ParamType


class StatesParamType(_StatesParamType):
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
@coordination_options
@output_option
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
    coordination: Coordination,
) -> None:
    """Show which objects are handled, and which are not.

    The states are those that the operator stores on the objects; the operator need not run. The kinds are
    those of the handlers in the files, or of -k. Startup, login and cleanup handlers are called, others are
    not. The cluster is only read.
    """
    from kopf._cli import status as implementation

    namespaces = selected_namespaces(namespaces, clusterwide)
    paths, modules = selected_sources(paths, modules, None if kinds else NO_KINDS)
    if watch and fail_on:
        raise click.UsageError("Either --watch or --fail-on can be used, not both.")
    options = implementation.Options(
        tuple(kinds), namespaces, output, only_problems, fail_on, watch, coordination
    )
    raise SystemExit(implementation.run(paths, modules, options))


@click.command()
@cluster_options
@option(
    "-n",
    "--namespace",
    metavar="NAME",
    show_default="that of the context, or default",
    help="The namespace of the object.",
)
@option(
    "--event",
    type=click.Choice(["listed", "added", "modified", "deleted"]),
    default="modified",
    help="The event that the operator would receive; listed: it has just started.",
)
@option(
    "--with",
    "changes",
    type=ExistingFileParamType,
    help="Explain the object as if this file (YAML or JSON) were merged into it.",
)
@option("--no-callables", is_flag=True, help="Do not call the functions in filters.")
@coordination_options
@option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json"]),
    default="table",
    help="The output format.",
)
@click.argument("object", metavar="KIND/NAME")
@handlers_options
def explain(
    object: str,
    paths: Collection[str],
    modules: Collection[str],
    namespace: str | None,
    event: Event,
    changes: pathlib.Path | None,
    no_callables: bool,
    output: ExplanationOutput,
    coordination: Coordination,
) -> None:
    """Explain why the handlers of an object are called or not called.

    It shows what an operator with these handlers would do with the object now. Startup, login and cleanup
    handlers are called, and the functions in filters; others are not. The cluster is only read.
    """
    from kopf._cli import explanation

    kind, separator, name = object.partition("/")
    if not (kind and separator and name) or "/" in name:
        raise click.UsageError(f"{object!r} is not an object: specify KIND/NAME, such as sites/home.")
    paths, modules = selected_sources(paths, modules)
    options = explanation.Options(
        kind, name, namespace, event, changes, not no_callables, output, coordination
    )
    raise SystemExit(explanation.run(paths, modules, options))


@click.command(name="release-finalizers")
@cluster_options
@all_namespaces_option("All namespaces; the same as without -n.")
@namespaces_option("The objects in these namespaces.")
@kinds_option
@option("--finalizer", metavar="NAME", help="Remove only this finalizer, instead of those of the operator.")
@option("--purge", is_flag=True, help="Also remove the annotations with the state of the operator.")
@coordination_options
@apply_option
@force_option
@output_option
@handlers_options
def release_finalizers(
    paths: Collection[str],
    modules: Collection[str],
    kinds: Collection[str],
    namespaces: Collection[str],
    clusterwide: bool,
    finalizer: str | None,
    purge: bool,
    apply: bool,
    force: bool,
    output: Output,
    coordination: Coordination,
) -> None:
    """Remove the finalizers of a stopped operator from its objects.

    The kinds and the finalizers are those of the handlers in the files, or of -k with the default finalizer.
    Finalizers of others stay. Startup, login and cleanup handlers are called, others are not.
    """
    from kopf._cli import release_finalizers as implementation

    namespaces = selected_namespaces(namespaces, clusterwide)
    paths, modules = selected_sources(paths, modules, None if kinds else NO_KINDS)
    options = implementation.Options(
        tuple(kinds), namespaces, finalizer, purge, apply, force, output, coordination
    )
    raise SystemExit(implementation.run(paths, modules, options))


@click.command()
@cluster_options
@all_namespaces_option("All namespaces; the same as without -n.")
@namespaces_option("The objects in these namespaces.")
@option("--purge", is_flag=True, help="Also remove the annotations with the state of the operator.")
@coordination_options
@apply_option
@force_option
@handlers_options
def uninstall(
    paths: Collection[str],
    modules: Collection[str],
    namespaces: Collection[str],
    clusterwide: bool,
    purge: bool,
    apply: bool,
    force: bool,
    coordination: Coordination,
) -> None:
    """Remove the webhooks, the finalizers, the peering records and the Lease of a stopped operator.

    First the managed webhook configurations, then the finalizers of all kinds of the handlers in the files,
    then the peering records and the Lease of its leader election. Startup, login and cleanup handlers are
    called, others are not.
    """
    from kopf._cli import uninstall as implementation
    from kopf._cli.release_finalizers import Options

    namespaces = selected_namespaces(namespaces, clusterwide)
    paths, modules = selected_sources(paths, modules, NO_KINDS)
    options = Options((), namespaces, None, purge, apply, force, "table", coordination)
    raise SystemExit(implementation.run(paths, modules, options))
