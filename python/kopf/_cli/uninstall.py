"""Command `kopf uninstall`: remove from the cluster everything by which a stopped operator affects objects.

Nothing is written without `--yes`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from kopf._cli import peering_records
from kopf._cli import release_finalizers as releasing
from kopf._cli.cluster_session import Session
from kopf._cli.inspected_kinds import select_kinds
from kopf._cli.leases import LEASES, lease_namespace
from kopf._cli.output import print_text
from kopf._cli.permissions import WEBHOOK_GROUP, WEBHOOKS, shared_secret
from kopf._cli.release_finalizers import Options
from kopf._intents.serialization import has_leader_election
from kopf._kits.webhooks.certificate_secrets import SECRETS
from kopf._kits.webhooks.shared_certificates import GENERATED
from kopf._objects.apierrors import ApiError, NotFound
from kopf._runtime import bridge
from kopf._runtime.loggers import full_name


def run(paths: Collection[str], modules: Collection[str], options: Options) -> int:
    """Print what is removed and remove it; the exit code: 3 if a live operator prevents it."""
    return releasing.run_release(paths, modules, options, _run)


def _run(session: Session, options: Options, stdout: Any) -> int:
    kinds = select_kinds(session, (), may_be_none=True)
    live = peering_records.find_live(session, options.namespaces, session.now())
    leader = releasing.find_leader(session, session.now())
    is_applied = options.apply and (options.force or not (live or leader))
    # Webhooks of a stopped operator reject the requests that follow.
    for line in _remove_webhooks(session, is_applied=is_applied):
        print_text(line, stdout)
    report = releasing.release_all(session, kinds, options)
    for line in releasing.format_kinds(report, options):
        print_text(line, stdout)
    failures: list[str] = []
    # Another attempt needs the records of live operators and the leader, if not all objects are released.
    if not report.failed and not session.interrupted.is_set():
        for line in _remove_peers(session, options, failures, is_applied=is_applied):
            print_text(line, stdout)
        for line in _remove_lease(session, failures, is_applied=is_applied):
            print_text(line, stdout)
        for line in _remove_secret(session, failures, is_applied=is_applied):
            print_text(line, stdout)
    for line in (*failures, *releasing.format_end(report, force=options.force)):
        print_text(line, stdout)
    return releasing.exit_code(report, force=options.force) or (1 if failures else 0)


def _remove_webhooks(session: Session, *, is_applied: bool) -> Iterator[str]:
    name = session.settings.admission.managed
    if name is None:
        return
    verb = "removed" if is_applied else "would remove"
    for plural in WEBHOOKS:
        kind = f"{WEBHOOK_GROUP}/v1/{plural}"
        if session.api.find(kind, name) is None:
            continue
        if is_applied:
            session.api.delete(kind, name, missing_ok=True)
        yield f"{verb} {plural}/{name}"


def _remove_peers(
    session: Session, options: Options, failures: list[str], *, is_applied: bool
) -> Iterator[str]:
    """Remove the records of operators that have not removed theirs; with `--force`, also of live ones."""
    verb = "removed" if is_applied else "would remove"
    now = session.now()
    for resource, body in peering_records.find_objects(session, options.namespaces):
        status = dict(body.get("status") or {})
        live = {peer for peer, *_ in bridge.live_peers(status, now)}
        removed = [
            peer
            for peer, record in status.items()
            if isinstance(record, dict) and "lastseen" in record and (options.force or peer not in live)
        ]
        if not removed:
            continue
        place = full_name(body.metadata.namespace, body.metadata.name)
        records = f"{', '.join(sorted(removed))} from the peering {place}"
        if is_applied:
            patch = {"status": dict.fromkeys(removed)}
            subresource = "status" if "status" in resource.subresources else None
            name, namespace = body.metadata.name or "", body.metadata.namespace
            try:
                session.api.patch(resource, name, patch, namespace, subresource=subresource)
            except NotFound:
                continue  # it was deleted meanwhile, with all records
            except ApiError as error:
                failures.append(f"cannot remove {records}: {error}")
                continue
        yield f"{verb} {records}"


def _remove_lease(session: Session, failures: list[str], *, is_applied: bool) -> Iterator[str]:
    """Remove the Lease of the leader election; the next operator creates it again."""
    if not has_leader_election(session.settings):
        return
    name, namespace = session.settings.leadership.name, lease_namespace(session.settings)
    if name is None or namespace is None:
        return
    try:
        if session.api.find(LEASES, name, namespace) is None:
            return
        if is_applied:
            session.api.delete(LEASES, name, namespace, missing_ok=True)
    except ApiError as error:
        failures.append(f"cannot remove the lease {namespace}/{name}: {error}")
        return
    yield f"{'removed' if is_applied else 'would remove'} the lease {namespace}/{name}"


def _remove_secret(session: Session, failures: list[str], *, is_applied: bool) -> Iterator[str]:
    """Remove the Secret with the certificate of the webhook server, if the operator has generated it."""
    secret = shared_secret(session.settings)
    if secret is None:
        return
    namespace, name = secret
    try:
        body = session.api.find(SECRETS, name, namespace, metadata_only=True)
        if body is None or GENERATED not in (body["metadata"].get("annotations") or {}):
            return
        if is_applied:
            session.api.delete(SECRETS, name, namespace, missing_ok=True)
    except ApiError as error:
        failures.append(f"cannot remove the secret {namespace}/{name}: {error}")
        return
    yield f"{'removed' if is_applied else 'would remove'} the secret {namespace}/{name}"
