"""Command `kopf doctor`: whether the cluster is ready for an operator.

It shows what `kopf check` finds, from the same functions, and what depends on the state of the cluster: the
clock of the server, CRDs and their schemas, the lease, what is stored on objects. The cluster is only read.
"""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import click
import yaml

from kopf._cli.access import missing_permissions
from kopf._cli.check import check_declarations, check_selectors
from kopf._cli.cluster_features import check_features, check_webhooks
from kopf._cli.cluster_session import (
    NOT_COORDINATED,
    Coordination,
    Session,
    SessionFailure,
    clock_offset,
    in_session,
)
from kopf._cli.cluster_state import check_crds, check_objects
from kopf._cli.findings import Finding
from kopf._cli.leases import find_holder
from kopf._cli.manifest_files import to_json, to_yaml
from kopf._cli.manifests import roles, rules_of
from kopf._cli.namespace_check import describe_unmatched
from kopf._cli.output import print_text
from kopf._cli.permissions import Permission, Resolved, all_permissions, peering_plural, resolve
from kopf._cli.tables import WIDTH, format_age
from kopf._intents.registries import activity_handlers
from kopf._intents.serialization import has_leader_election
from kopf._objects.apierrors import ApiError, Forbidden
from kopf._objects.reasons import Activity
from kopf._runtime import bridge
from kopf._runtime.banner import count_noun

CLOCK_WARNING = 2.0
"""Seconds of difference between the clocks for a warning."""
CLOCK_FAILURE = 30.0
"""Seconds of difference between the clocks for a failure."""

MARGIN = 18
"""The width of the first two columns."""


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    namespaces: Sequence[str]
    as_manifest: bool
    is_strict: bool
    output: Literal["text", "json"]
    coordination: Coordination = NOT_COORDINATED


def run(paths: Sequence[str], modules: Sequence[str], options: Options) -> int:
    """Print the findings, or the roles; the exit code: 1 if anything fails."""
    sources = [*paths, *modules]
    try:
        result = in_session(
            paths,
            modules,
            options.namespaces,
            lambda session: _run(session, sources, options),
            options.coordination,
        )
    except SessionFailure as failure:
        if options.as_manifest:
            raise
        result = _render([Finding(failure.check, "fail", failure.message)], options)
    if result is None:
        raise click.Abort
    text, code = result
    print_text(text, sys.stdout)
    return code


def _run(session: Session, sources: Sequence[str], options: Options) -> tuple[str, int]:
    if options.as_manifest:
        resolved = resolve(session.registry, session.resources)
        needed = _find_permissions(session, resolved, options.namespaces)
        documents = [one for one in roles("operator", "default", needed) if "rules" in one]
        return (to_json(documents) if options.output == "json" else to_yaml(documents).rstrip("\n")), 0
    findings = [*_check_server(session), _check_login(session)]
    if session.has_handlers:
        findings += _check_operator(session, sources, options.namespaces)
    return _render(findings, options)


def _render(findings: Sequence[Finding], options: Options) -> tuple[str, int]:
    """The output, and the exit code."""
    failures, warnings = (sum(one.level == level for one in findings) for level in ("fail", "warn"))
    if options.output == "json":
        checks = [finding.to_json() for finding in findings]
        document = {"version": 1, "checks": checks, "failures": failures, "warnings": warnings}
        text = json.dumps(document, indent=2)
    else:
        text = "\n".join([*_format_lines(findings), _summarize(failures, warnings)])
    return text, 1 if failures or (options.is_strict and warnings) else 0


def _summarize(failures: int, warnings: int) -> str:
    counted = [(failures, "failure"), (warnings, "warning")]
    texts = [count_noun(count, noun) for count, noun in counted if count]
    return ", ".join(texts) or "no problems"


def _format_lines(findings: Sequence[Finding]) -> Iterator[str]:
    previous = ""
    for finding in findings:
        title = finding.check if finding.check != previous else ""
        previous = finding.check
        lines = textwrap.wrap(finding.text, WIDTH - MARGIN, break_long_words=False, break_on_hyphens=False)
        for number, line in enumerate([*lines, *([finding.detail] if finding.detail else [])]):
            start = f"{title:<12}{finding.level:<{MARGIN - 12}}" if number == 0 else " " * MARGIN
            yield f"{start}{line}"


def _check_server(session: Session) -> Iterator[Finding]:
    before = time.time()
    started = time.perf_counter()
    answer = session.api.request("GET", "/version")
    seconds = time.perf_counter() - started
    version = answer.json.get("gitVersion", "unknown version")
    yield Finding("server", "ok", f"{version}, {seconds * 1000:.0f} ms")
    offset = clock_offset(answer.headers.get("date"), before, before + seconds)
    if offset is not None:
        yield describe_clock(offset)


def describe_clock(offset: float) -> Finding:
    """The finding for a clock of the server that is ahead by so many seconds."""
    size = abs(offset)
    level: Literal["ok", "warn", "fail"] = "ok"
    if size > CLOCK_WARNING:
        level = "fail" if size > CLOCK_FAILURE else "warn"
    if level == "ok":
        return Finding("clock", level, "that of the server is the same as here")
    exact = f"{size:.1f} s" if size < 60 else f"{format_age(size)} ({size:.0f} s)"
    side = "ahead" if offset > 0 else "behind"
    text = f"that of the server is {exact} {side}: delays and timeouts that survive restarts are wrong"
    return Finding("clock", level, text)


def _check_login(session: Session) -> Finding:
    logins = activity_handlers(session.registry).get_handlers(Activity.AUTHENTICATION)
    if not all(handler._fallback for handler in logins):
        return Finding("login", "ok", "login handlers of the operator")
    if bridge.has_service_account() and not bridge.has_named_kubeconfig():
        return Finding("login", "ok", "service account of the pod")
    known = bridge.current_address()
    context = f", context {known[0]}" if known is not None and known[0] else ""
    return Finding("login", "ok", f"kubeconfig{context}")


def _check_operator(session: Session, sources: Sequence[str], namespaces: Sequence[str]) -> Iterator[Finding]:
    declarations = dict.fromkeys(check_declarations(session.registry, sources))
    yield from (Finding("handlers", "fail", text) for text in declarations)
    resolved = resolve(session.registry, session.resources)
    missing = list(check_selectors(resolved, session.resources))
    yield from (Finding("kinds", "fail", text) for text in missing)
    if not missing:
        yield Finding("kinds", "ok", f"{len(resolved)} of {len(resolved)} selectors are resolved")
    yield from (Finding("namespaces", "warn", text) for text in describe_unmatched(session.api, namespaces))
    yield from _check_access(session, resolved, namespaces)
    yield from _as_far_as_readable("schema", lambda: check_crds(session, resolved))
    yield from _as_far_as_readable("leadership", lambda: _check_lease(session))
    yield from _check_peering(session)
    yield from _as_far_as_readable("webhooks", lambda: check_webhooks(session))
    yield from _as_far_as_readable("state", lambda: check_objects(session, resolved, namespaces))
    yield from _as_far_as_readable("features", lambda: check_features(session, resolved))


def _as_far_as_readable(check: str, find: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings; a note if the operator, which needs no permission for it, may not read the objects."""
    try:
        yield from find()
    except Forbidden as error:
        yield Finding(check, "info", f"not checked, a permission is missing: {error}")
    except ApiError as error:
        yield Finding(check, "warn", f"not checked: {error}")


def _find_permissions(session: Session, resolved: Resolved, namespaces: Sequence[str]) -> list[Permission]:
    return all_permissions(
        session.api, session.registry, resolved, session.resources, namespaces, session.settings
    )


def _check_access(session: Session, resolved: Resolved, namespaces: Sequence[str]) -> Iterator[Finding]:
    needed = _find_permissions(session, resolved, namespaces)
    missing = list(missing_permissions(session.api, needed))
    for permission in missing:
        source = f", needed by {permission.source}" if permission.source else ""
        unless = f", needed unless {permission.unless}" if permission.unless else ""
        [rule] = rules_of([permission])
        detail = yaml.safe_dump(rule, default_flow_style=True, sort_keys=False, width=10**6).strip()
        yield Finding("access", "fail", f"{permission}{source}{unless}", detail)
    if not missing:
        yield Finding("access", "ok", count_noun(len(needed), "permission"))


def _check_lease(session: Session) -> Iterator[Finding]:
    if not has_leader_election(session.settings):
        return
    holder = find_holder(session.api, session.settings, time.time())
    if holder is None:
        text = "the name or namespace of the lease is known only to the operator"
        yield Finding("leadership", "info", text)
        return
    yield Finding("leadership", "ok", holder.describe())


def _check_peering(session: Session) -> Iterator[Finding]:
    peering = session.settings.peering
    plural = peering_plural(session.settings)
    is_known = any(resource.plural == plural for resource in session.resources)
    if peering.mandatory and not peering.standalone and not is_known:
        yield Finding("peering", "fail", f"it is mandatory, but the cluster has no {plural}: apply their CRD")
