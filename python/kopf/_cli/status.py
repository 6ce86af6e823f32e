"""Command `kopf status`: the states of the objects of an operator, from what the operator stores on them.

The cluster is only read.
"""

from __future__ import annotations

import collections
import datetime
import json
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import click

from kopf._cli import peering_records
from kopf._cli.cluster_session import NOT_COORDINATED, Coordination, Session, in_session
from kopf._cli.inspected_kinds import (
    InspectedKind,
    identity,
    inspect_page,
    list_pages,
    qualified_name,
    select_kinds,
)
from kopf._cli.leases import Holder, find_lease
from kopf._cli.output import print_parts
from kopf._cli.peering_records import LivePeer
from kopf._cli.tables import WIDTH, count_words, format_age, parse_time, table_lines
from kopf._objects.apierrors import ApiError, Forbidden, Invalid, NotFound
from kopf._objects.bodies import Body

Output = Literal["table", "wide", "json", "name"]

STATES = (
    "malformed",
    "stuck",
    "deleting",
    "failed",
    "overdue",
    "retrying",
    "handling",
    "changed",
    "new",
    "handled",
    "foreign",
)
PROBLEMS = frozenset({"malformed", "stuck", "failed", "overdue", "retrying"})
INTERVAL = 2.0
"""Seconds between the listings of `--watch`."""
PERMANENT_ERRORS = (Forbidden, NotFound, Invalid)
"""The errors that end `--watch`: the permissions are missing, or the CRD is deleted."""
CLEAR = "\x1b[H\x1b[2J"
"""Clears a terminal."""

COLUMNS = (
    "NAMESPACE",
    "NAME",
    "STATE",
    "REASON",
    "DONE",
    "ATTEMPT",
    "NEXT",
    "SINCE",
    "FINALIZERS",
    "MESSAGE",
)


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    kinds: Collection[str]
    namespaces: Collection[str]
    output: Output
    only_problems: bool
    fail_on: Collection[str]
    watch: bool
    coordination: Coordination = NOT_COORDINATED


@dataclass(frozen=True, slots=True)
class Row:
    """One object. Only the texts of the output are kept: there can be many objects."""

    kind: InspectedKind
    name: str
    is_namespaced: bool
    text: str
    """The object in the output of `-o json`; empty if it is not needed."""
    cells: Sequence[str]
    """The texts of the columns of a wide table; empty if they are not needed."""


@dataclass(frozen=True)
class Report:
    """All objects, with the time when they were read."""

    now: int
    kinds: Sequence[InspectedKind]
    rows: Sequence[Row]
    counts: dict[tuple[Any, str], int]
    """The numbers of all objects, by their resources and states."""
    peers: Sequence[LivePeer]
    lease: Holder | None = None
    """The Lease of the operator, if it elects a leader."""

    def to_compare(self) -> list[Any]:
        """The parts that `--watch` compares: all except ages."""
        peers = [(peer.peering, peer.id, peer.priority) for peer in self.peers]
        holder = self.lease.identity if self.lease is not None else None
        return [[(row.kind.resource, row.text) for row in self.rows], self.counts, peers, holder]


def run(paths: Collection[str], modules: Collection[str], options: Options) -> int:
    """Print the states; the exit code: 3 if an object is in one of the states to fail on."""
    stdout = sys.stdout
    code = in_session(
        paths,
        modules,
        options.namespaces,
        lambda session: _run(session, options, stdout),
        options.coordination,
    )
    if code is None and options.fail_on:
        raise click.ClickException("The states of the objects are not known: the command was interrupted.")
    return code or 0


def _run(session: Session, options: Options, stdout: Any) -> int:
    kinds = select_kinds(session, options.kinds)
    report = _inspect(session, kinds, options)
    print_parts(format_report(report, options), stdout)
    if options.watch:
        _watch(session, kinds, report, options, stdout)
    failed = any(count and state in options.fail_on for (_, state), count in report.counts.items())
    return 3 if failed else 0


def _watch(
    session: Session, kinds: Sequence[InspectedKind], report: Report, options: Options, stdout: Any
) -> None:
    """Print the states again when they change, until the command is interrupted.

    Servers restart, and networks fail: these errors are warnings, and the next listing follows.
    """
    warning = ""
    while not session.interrupted.wait(INTERVAL):
        before = report
        try:
            report = _inspect(session, kinds, options)
        except ApiError as error:
            if isinstance(error, PERMANENT_ERRORS):
                raise
            if warning != str(error):
                warning = str(error)
                text = f"Warning: The cluster cannot be read, the next attempts follow: {error}"
                click.echo(text, err=True)
            continue
        if warning:
            warning = ""
            click.echo("The cluster can be read again.", err=True)
        if report.to_compare() != before.to_compare():
            if options.output in ("table", "wide"):
                click.echo(CLEAR if stdout.isatty() else "", file=stdout, nl=not stdout.isatty())
            print_parts(format_report(report, options), stdout)


def _inspect(session: Session, kinds: Sequence[InspectedKind], options: Options) -> Report:
    rows: list[Row] = []
    counts: collections.Counter[tuple[Any, str]] = collections.Counter()
    # Most texts are those of other objects, too: each is in memory once.
    texts: dict[str, str] = {}
    now = session.now()
    for kind in kinds:
        for page in list_pages(session, kind, options.namespaces):
            for body, found in zip(page, inspect_page(session, kind, page, now), strict=True):
                counts[kind.resource, found["state"]] += 1
                if not options.only_problems or found["state"] in PROBLEMS:
                    rows.append(_make_row(kind, body, found, options, now, texts))
    peers = peering_records.find_live(session, options.namespaces, now)
    return Report(now, kinds, rows, dict(counts), peers, find_lease(session, now / 1e6))


def _make_row(
    kind: InspectedKind,
    body: Body,
    found: dict[str, Any],
    options: Options,
    now: int,
    texts: dict[str, str],
) -> Row:
    name, namespace = body.metadata.name or "", body.metadata.namespace
    text: str = ""
    cells: tuple[str, ...] = ()
    if options.output == "json" or options.watch:
        text = json.dumps({**identity(kind.resource, name, namespace), **found})
    if options.output in ("table", "wide"):
        others = (texts.setdefault(cell, cell) for cell in _cells(found, now))
        cells = (texts.setdefault(namespace or "", namespace or ""), name, *others)
    return Row(kind, name, bool(namespace), text, cells)


def format_report(report: Report, options: Options) -> Iterator[str]:
    """The parts of the output, with the ends of lines."""
    if options.output == "json":
        yield from _format_json(report, gap=" " if options.watch else "\n")
        return
    lines: Iterator[str]
    if options.output == "name":
        lines = (f"{qualified_name(row.kind.resource)}/{row.name}" for row in report.rows)
    else:
        lines = _format_lines(report, is_wide=options.output == "wide")
    for line in lines:
        yield f"{line}\n"


def _format_json(report: Report, *, gap: str) -> Iterator[str]:
    yield f'{{"version": 1, "objects": [{gap}'
    for number, row in enumerate(report.rows):
        yield f",{gap}{row.text}" if number else row.text
    rest = json.dumps(_summarize(report)).removeprefix("{")
    yield f"{gap}],{gap}{rest}\n"


def _summarize(report: Report) -> dict[str, Any]:
    """The output of `-o json` about all objects together."""
    counts = []
    for kind in report.kinds:
        states = _counts_of(report, kind)
        resource = qualified_name(kind.resource)
        counts.append({"resource": resource, "total": sum(states.values()), "states": states})
    peers = [{**peer.to_json(), "seen": _format_time(peer.seen)} for peer in report.peers]
    lease = report.lease.to_json() if report.lease is not None else None
    return {"counts": counts, "peers": peers, "lease": lease}


def _format_time(micros: int) -> str:
    return datetime.datetime.fromtimestamp(micros / 1e6, datetime.UTC).isoformat()


def _counts_of(report: Report, kind: InspectedKind) -> dict[str, int]:
    return {state: report.counts.get((kind.resource, state), 0) for state in STATES}


def _format_lines(report: Report, *, is_wide: bool) -> Iterator[str]:
    if report.rows:
        header, rows = _columns(report, is_wide=is_wide)
        yield from table_lines(header, rows, width=None if is_wide else WIDTH)
    for kind in report.kinds:
        counts = _counts_of(report, kind)
        total, plural = sum(counts.values()), kind.resource.plural
        noun = (kind.resource.singular or plural) if total == 1 else plural
        line = f"{total} {noun}: {count_words(counts)}" if total else f"no {plural}"
        yield from textwrap.wrap(line, WIDTH, subsequent_indent="  ")
    for peer in report.peers:
        age = format_age((report.now - peer.seen) / 1e6)
        yield f"peering {peer.peering}: {peer.id}, priority {peer.priority}, renewed {age} ago"
    if report.lease is not None:
        yield report.lease.describe()


def _columns(report: Report, *, is_wide: bool) -> tuple[list[str], list[list[str]]]:
    hidden = set() if is_wide else {"FINALIZERS"}
    if not any(row.is_namespaced for row in report.rows):
        hidden.add("NAMESPACE")
    many = len(report.kinds) > 1
    table = []
    for row in report.rows:
        cells = dict(zip(COLUMNS, row.cells, strict=True))
        if many:
            cells["NAME"] = f"{row.kind.resource.plural}/{row.name}"
        table.append([cell or "-" for column, cell in cells.items() if column not in hidden])
    return [column for column in COLUMNS if column not in hidden], table


def _cells(found: dict[str, Any], now: int) -> list[str]:
    """The texts of the columns after the name."""
    next_at, since = _seconds_until(found["next"], now), _seconds_until(found["since"], now)
    return [
        found["state"],
        found["reason"] or "",
        f"{found['done']}/{found['total']}" if found["total"] else "",
        f"{found['handler']} {found['attempts']}" if found["handler"] else "",
        "" if next_at is None else format_age(next_at) if next_at > 0 else "now",
        "" if since is None else format_age(-since),
        ",".join(found["finalizers"]),
        found["message"] or " ",
    ]


def _seconds_until(moment: str | None, now: int) -> float | None:
    return None if moment is None else parse_time(moment) - now / 1e6
