"""The command `kopf manifests` with its options."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from kopf._cli.options import (
    ExistingFileParamType,
    PathParamType,
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

    from kopf._cli.manifest_files import Format
    from kopf._cli.manifest_objects import Monitor


@click.command()
@cluster_options
@all_namespaces_option("For the whole cluster.")
@namespaces_option("For these namespaces: Roles in those that are named exactly.")
@option("--name", default="operator", help="The name of all objects.")
@option("--home", default="default", metavar="NAMESPACE", help="The namespace of the operator itself.")
@option(
    "--image", metavar="IMAGE", help="Add a Deployment with this image, whose command is `kopf run FILE`."
)
@option(
    "--replicas",
    type=click.IntRange(min=1),
    default=1,
    help="The replicas of the Deployment: more than one need leader election.",
)
@option("--leader-elect", is_flag=True, help="Elect a leader, with a Lease of the same name.")
@option(
    "--startup/--no-startup",
    default=True,
    help="Call the startup and cleanup handlers once: the permissions depend on the settings.",
)
@option(
    "--monitor",
    type=click.Choice(["none", "service", "servicemonitor", "podmonitor"]),
    default="service",
    help="How Prometheus finds the pods.",
)
@option("--rules", is_flag=True, help="Add the alerts, for the Prometheus operator.")
@option("--dashboard", is_flag=True, help="Add the dashboard, for the sidecar of Grafana.")
@option(
    "--network-policy",
    "api_servers",
    multiple=True,
    metavar="CIDR",
    help="Add a NetworkPolicy, which allows requests to these addresses of the API server.",
)
@option(
    "--monitoring-namespace",
    "monitoring",
    default="monitoring",
    metavar="NAMESPACE",
    help="The namespace of Prometheus, for the NetworkPolicy.",
)
@option(
    "--crds",
    type=PathParamType(exists=True, file_okay=False),
    help="Add the CRDs in the files of this folder.",
)
@option(
    "--extra-rules",
    type=ExistingFileParamType,
    help="Add the rules in this file: for requests of the handlers themselves.",
)
@option(
    "--format",
    "output_format",
    type=click.Choice(["yaml", "kustomize"]),
    default="yaml",
    help="One file, or a base for kustomize with a file for each object.",
)
@option("--output", type=PathParamType(file_okay=False), help="Write the files to this folder.")
@option(
    "--check",
    type=PathParamType(file_okay=False),
    help="Write nothing; exit with 3 and a diff if this folder has other files.",
)
@option("--uninstall-job", "uninstall", is_flag=True, help="Only a Job that runs `kopf uninstall`.")
@handlers_options
def manifests(
    paths: Collection[str],
    modules: Collection[str],
    namespaces: Collection[str],
    clusterwide: bool,
    name: str,
    home: str,
    image: str | None,
    replicas: int,
    leader_elect: bool,
    startup: bool,
    monitor: Monitor,
    rules: bool,
    dashboard: bool,
    api_servers: tuple[str, ...],
    monitoring: str,
    crds: pathlib.Path | None,
    extra_rules: pathlib.Path | None,
    output_format: Format,
    output: pathlib.Path | None,
    check: pathlib.Path | None,
    uninstall: bool,
) -> None:
    """Print the permissions and the Deployment of an operator.

    Load the files and the modules, call the startup and cleanup handlers, and print the permissions that Kopf
    needs for their handlers and settings, as YAML for kubectl. Requests of the handlers themselves are not
    known: add their permissions with --extra-rules. The resources must exist in the cluster.
    """
    from kopf._cli import manifest_files, manifests

    if output_format == "kustomize" and output is None and check is None:
        raise click.UsageError("A base for kustomize has several files: use --output or --check.")
    _check_networks(api_servers)
    namespaces = selected_namespaces(namespaces, clusterwide)
    paths, modules = selected_sources(paths, modules)
    operator = manifests.Operator(paths, modules, namespaces, name, home, image, startup)
    parts = manifests.Parts(monitor, rules, dashboard, api_servers or None, monitoring, crds, extra_rules)
    scale = manifests.Scale(replicas, leader_elect)
    documents = (
        manifests.generate_uninstall_job(operator, scale)
        if uninstall
        else manifests.generate(operator, scale, parts)
    )
    if output is None and check is None:
        click.echo(manifest_files.to_yaml(documents), nl=False)
        return
    files = manifest_files.to_files(documents, output_format)
    if check is not None:
        differences = manifest_files.compare_files(check, files)
        click.echo(differences, nl=False)
        raise SystemExit(3 if differences else 0)
    if output is not None:
        manifest_files.write_files(output, files)


def _check_networks(networks: Collection[str]) -> None:
    import ipaddress

    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError:
            raise click.UsageError(f"{network!r} is not a network such as 10.0.0.1/32.") from None
