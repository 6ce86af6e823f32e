"""Command `kopf init`: a new project with a CRD, a handler, a test, and a deployment."""

from __future__ import annotations

import pathlib
import re
import shlex
import string

import click

from kopf._cli import project_templates

_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")


def create_project(folder: pathlib.Path, *, kind: str, plural: str | None, group: str) -> None:
    """Write the files of the project, and print what to do next.

    Wrong names and existing files are usage errors; then nothing is written.
    """
    singular = kind.lower()
    plural = plural if plural is not None else pluralize(singular)
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    if not _KIND.fullmatch(kind):
        raise click.UsageError(f"--kind must be a name such as CacheCluster, not {kind!r}.")
    if not _LABEL.fullmatch(plural):
        raise click.UsageError(f"--plural must be a name such as cacheclusters, not {plural!r}.")
    if not _GROUP.fullmatch(group):
        raise click.UsageError(f"--group must be a domain such as example.com, not {group!r}.")
    if not _LABEL.fullmatch(name):
        raise click.UsageError(f"The folder must have a name such as guest-operator, not {folder.name!r}.")
    existing = [file for file in project_templates.FILES if (folder / file).exists()]
    if existing:
        raise click.UsageError(f"{folder} has files already, which are not changed: {', '.join(existing)}.")
    names = {"name": name, "kind": kind, "singular": singular, "plural": plural, "group": group}
    folder.mkdir(parents=True, exist_ok=True)
    for file, template in project_templates.FILES.items():
        (folder / file).write_text(string.Template(template).substitute(names), encoding="utf-8")
        click.echo(f"Created: {folder / file}")
    click.echo("Next:")
    for command in (f"cd {shlex.quote(str(folder))}", "python -m pytest", "kopf dev"):
        click.echo(f"  {command}")


def pluralize(singular: str) -> str:
    """The plural of a name, as Kubernetes forms it: `policies`, `gateways`, `classes`."""
    if singular.endswith(("s", "x", "z", "ch", "sh")):
        return f"{singular}es"
    if singular.endswith("y") and not singular.endswith(("ay", "ey", "oy", "uy")):
        return f"{singular.removesuffix('y')}ies"
    return f"{singular}s"
