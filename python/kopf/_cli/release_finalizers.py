"""Command `kopf release-finalizers`: remove the finalizers of an operator that does not run any more.

Nothing is written without `--yes`. Each write depends on the version of the object that was read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import click

from kopf._cli import peering_records
from kopf._cli.cluster_session import NOT_COORDINATED, Coordination, Session, in_session
from kopf._cli.inspected_kinds import (
    InspectedKind,
    identity,
    list_pages,
    qualified_name,
    select_kinds,
    to_text,
)
from kopf._cli.leases import Holder, find_lease
from kopf._cli.output import print_text
from kopf._cli.peering_records import LivePeer
from kopf._cli.tables import format_age, parse_time
from kopf._intents import serialization
from kopf._objects.apierrors import ApiError, Conflict, Invalid, NotFound
from kopf._objects.bodies import Body
from kopf._objects.resources import Resource
from kopf._runtime import bridge
from kopf._runtime.bridge import CHILDREN_FINALIZER
from kopf._runtime.loggers import full_name

Output = Literal["table", "wide", "json", "name"]
Result = Literal["planned", "released", "gone", "failed"]

ATTEMPTS = 10
"""How many times an object is read and patched again if others change it meanwhile."""


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    kinds: Collection[str]
    namespaces: Collection[str]
    finalizer: str | None
    """The only finalizer to remove; `None` for those of the operator."""
    purge: bool
    apply: bool
    force: bool
    output: Output
    coordination: Coordination = NOT_COORDINATED


@dataclass
class Release:
    """The release of one object."""

    resource: Resource
    name: str
    namespace: str | None
    finalizers: Sequence[str]
    """The finalizers to remove."""
    remaining: Sequence[str]
    """The finalizers of others."""
    deleted: str | None
    """The time when the deletion was requested."""
    result: Result
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The object in the output of `-o json`."""
        return {
            **identity(self.resource, self.name, self.namespace),
            "finalizers": list(self.finalizers),
            "remaining": list(self.remaining),
            "deleted": self.deleted,
            "result": self.result,
            "error": self.error,
        }


@dataclass
class KindReport:
    """The releases of the objects of one kind."""

    kind: InspectedKind
    total: int = 0
    releases: list[Release] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """All releases, and the live operators that prevent them."""

    now: int
    kinds: Sequence[KindReport]
    peers: Sequence[LivePeer]
    is_applied: bool
    leader: Holder | None = None
    """The live leader of the operator's leader election."""

    @property
    def is_live(self) -> bool:
        """Whether an operator is running."""
        return bool(self.peers) or self.leader is not None

    @property
    def failed(self) -> bool:
        """Whether an object could not be released."""
        return any(release.result == "failed" for kind in self.kinds for release in kind.releases)


def run(paths: Collection[str], modules: Collection[str], options: Options) -> int:
    """Print the objects and release them; the exit code: 3 if a live operator prevents it."""
    return run_release(paths, modules, options, _run)


def run_release(
    paths: Collection[str],
    modules: Collection[str],
    options: Options,
    release: Callable[[Session, Options, Any], int],
) -> int:
    """Call the function with the session, the options and stdout; its exit code."""
    stdout = sys.stdout
    code = in_session(
        paths,
        modules,
        options.namespaces,
        lambda session: release(session, options, stdout),
        options.coordination,
    )
    if code is None:
        raise click.ClickException("The command was interrupted: some objects may not be released.")
    return code


def _run(session: Session, options: Options, stdout: Any) -> int:
    report = release_all(session, select_kinds(session, options.kinds), options)
    text = format_report(report, options)
    if text:
        print_text(text, stdout)
    return exit_code(report, force=options.force)


def exit_code(report: Report, *, force: bool) -> int:
    """The exit code for a report."""
    if report.is_live and not force:
        return 3
    return 1 if report.failed else 0


def release_all(session: Session, kinds: Sequence[InspectedKind], options: Options) -> Report:
    """Release all objects of these kinds; only find them without `--yes`, or if an operator is live."""
    now = session.now()
    peers = peering_records.find_live(session, options.namespaces, now, warn=True)
    leader = find_leader(session, now, warn=True)
    is_applied = options.apply and (options.force or not (peers or leader))
    reports = []
    for kind in kinds:
        report = KindReport(kind)
        reports.append(report)
        for page in list_pages(session, kind, options.namespaces):
            report.total += len(page)
            for body in page:
                if session.interrupted.is_set():
                    return Report(now, reports, peers, is_applied, leader)
                release = _release(session, kind, body, options, is_applied=is_applied)
                if release is not None:
                    report.releases.append(release)
    return Report(now, reports, peers, is_applied, leader)


def find_leader(session: Session, now: int, *, warn: bool = False) -> Holder | None:
    """The live leader of the operator's leader election. The time is in microseconds since the epoch.

    With `warn`, there is a warning if the Lease cannot be read.
    """
    holder = find_lease(session, now / 1e6, warn=warn)
    return holder if holder is not None and holder.is_live else None


def _release(
    session: Session, kind: InspectedKind, body: Body, options: Options, *, is_applied: bool
) -> Release | None:
    """Release one object; `None` if there is nothing to remove."""
    own = _own_finalizers(kind, options)
    purged = None
    if options.purge:
        purged = serialization.serialize_settings(session.settings)["persistence"]
    patch = bridge.release_patch(to_text(body), own, purged)
    if patch is None:
        return None
    metadata = body.metadata
    present: list[str] = metadata.get("finalizers") or []
    release = Release(
        resource=kind.resource,
        name=metadata.name or "",
        namespace=metadata.namespace,
        finalizers=[name for name in present if name in own],
        remaining=[name for name in present if name not in own],
        deleted=metadata.deletion_timestamp,
        result="planned",
    )
    if is_applied:
        try:
            release.result = _send(session, kind.resource, body, patch, own, purged)
        except ApiError as error:
            release.result, release.error = "failed", str(error)
    return release


def _own_finalizers(kind: InspectedKind, options: Options) -> list[str]:
    return [options.finalizer] if options.finalizer is not None else [*kind.finalizers, CHILDREN_FINALIZER]


def _send(
    session: Session,
    resource: Resource,
    body: Body,
    patch: list[dict[str, Any]],
    own: list[str],
    purged: dict[str, Any] | None,
) -> Result:
    """Send the patch; if the object has changed meanwhile, one for its new state."""
    name, namespace, uid = body.metadata.name or "", body.metadata.namespace, body.metadata.uid
    api = session.api.using(retries=True)  # it can be repeated: a patch of an older version is rejected
    for attempt in range(ATTEMPTS):
        try:
            api.patch(resource, name, patch, namespace)
            return "released"
        except NotFound:
            return "gone"
        except (Conflict, Invalid):
            # By a list: neither this command nor the operator needs the permission to get objects.
            latest = next(iter(api.list(resource, namespace, fields={"metadata.name": name})), None)
            if latest is None or latest.metadata.uid != uid:
                return "gone"
            is_same = latest.metadata.get("resourceVersion") == body.metadata.get("resourceVersion")
            if is_same or attempt == ATTEMPTS - 1:
                raise
            body = latest
        renewed = bridge.release_patch(to_text(body), own, purged)
        if renewed is None:
            return "released"
        patch = renewed
    raise AssertionError("unreachable: the last attempt returns or raises")


def format_report(report: Report, options: Options) -> str:
    """The text of the whole output."""
    if options.output == "json":
        return json.dumps(to_json(report), indent=2)
    if options.output == "name":
        releases = (release for kind in report.kinds for release in kind.releases)
        return "\n".join(f"{qualified_name(release.resource)}/{release.name}" for release in releases)
    return "\n".join([*format_kinds(report, options), *format_end(report, force=options.force)])


def to_json(report: Report) -> dict[str, Any]:
    """The output of `-o json`."""
    return {
        "version": 1,
        "applied": report.is_applied,
        "objects": [release.to_json() for kind in report.kinds for release in kind.releases],
        "peers": [peer.to_json() for peer in report.peers],
        "lease": report.leader.to_json() if report.leader is not None else None,
    }


def format_kinds(report: Report, options: Options) -> Iterator[str]:
    """The objects of each kind, after a line with their number."""
    verb = "removed" if report.is_applied else "would remove"
    for kind in report.kinds:
        found = {name for release in kind.releases for name in release.finalizers}
        own = _own_finalizers(kind.kind, options)
        removed = [name for name in own if name in found or name != CHILDREN_FINALIZER]
        traces = f"{', '.join(removed)}{' and annotations' if options.purge else ''}"
        count = sum(release.result != "failed" for release in kind.releases)
        yield f"{verb} {traces} from {count} of {kind.total} {kind.kind.resource.plural}"
        width = max((len(_place(release)) for release in kind.releases), default=0)
        for release in kind.releases:
            is_owner = CHILDREN_FINALIZER in release.finalizers
            kept = "its children in other namespaces are not deleted" if is_owner else ""
            note = "; ".join(filter(None, [_note(release, report.now), kept]))
            if options.output == "wide":
                note = "  ".join(filter(None, [", ".join(release.finalizers), note]))
            yield f"  {_place(release).ljust(width)}  {note}".rstrip()


def _place(release: Release) -> str:
    return full_name(release.namespace, release.name)


def _note(release: Release, now: int) -> str:
    if release.result == "failed":
        return f"failed: {release.error}"
    if release.result == "gone":
        return "does not exist any more"
    if release.deleted is None:
        return ""
    age = format_age(now / 1e6 - parse_time(release.deleted))
    if release.remaining:
        return f"being deleted for {age}: kept by {', '.join(release.remaining)}"
    return (
        f"being deleted for {age}: {'has disappeared' if release.result == 'released' else 'will disappear'}"
    )


def format_end(report: Report, *, force: bool) -> Iterator[str]:
    """The live operators, and what has to be done to apply the changes."""
    for peer in report.peers:
        yield f"peering {peer.peering}: {peer.id} is running."
    if report.leader is not None:
        yield f"{report.leader.describe()}."
    if report.is_live and not force:
        yield "A running operator would add the finalizers again. Stop it, or use --force."
    if not report.is_applied:
        yield "Nothing was changed." + ("" if report.is_live and not force else " Use --yes to apply.")
