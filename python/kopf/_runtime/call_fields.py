"""The fields of JSON log lines about the running call: the cause, the handler, the leader's term."""

from __future__ import annotations

from kopf._runtime.context import handler_var, handling_var, leadership_var, retry_var


def call_fields() -> dict[str, str | int]:
    """The fields for a line that is logged now, in this context.

    `cause` is the id of the cause: the same in all lines about one handling of an object, also after a
    restart and in other replicas. `reason` is that of the handling, such as `create`. `handler` and `retry`
    are the id of the handler that is being called, and the number of its earlier attempts. `replica` and
    `term` are those of the leader, with leader election.
    """
    fields: dict[str, str | int] = {}
    source = handling_var.get(None)
    handling = source.handling if source is not None else None
    if handling is not None:
        fields["cause"], fields["reason"] = handling
    retry = retry_var.get(None)
    if retry is not None:
        fields["handler"], fields["retry"] = handler_var.get().id, retry
    leadership = leadership_var.get(None)
    if leadership is not None:
        fields["replica"], fields["term"] = leadership.identity, leadership.term
    return fields
