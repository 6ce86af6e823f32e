"""Causes of cycles and daemons: their attributes and arguments are created at the first access."""

import dataclasses
import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from kopf._intents.causes import ChangingCause, WatchingCause
from kopf._objects.bodies import Body
from kopf._objects.patches import Patch
from kopf._runtime.bridge import Attempt, LazyAttribute, Object
from kopf._runtime.causes import LazyChangingCause, LazyWatchingCause, make_cause

OBJECT = {"metadata": {"name": "n", "namespace": "ns", "uid": "u", "labels": {"a": "b"}}, "spec": {"x": 1}}
TEXT = '{"metadata": {"name": "n", "namespace": "ns", "uid": "u", "labels": {"a": "b"}}, "spec": {"x": 1}}'
SHARED = {"logger", "memo", "resource", "patch", "body", "spec", "meta", "status"}
SHARED |= {"uid", "name", "namespace", "labels", "annotations"}


def source(**more: Any) -> SimpleNamespace:
    object = Object.decode(TEXT)
    values: dict[str, Any] = {"object": object, "body": Body(object), "indices": {}}
    for name in ("logger", "local_logger", "memo", "resource", "patch", "type", "event"):
        values[name] = f"the {name}"
    return SimpleNamespace(**{**values, **more})


def test_attributes_are_read_once_and_can_be_assigned() -> None:
    class Holder:
        _source: Any = None
        plain: Any = LazyAttribute()
        renamed: Any = LazyAttribute("plain")
        converted: Any = LazyAttribute("plain", convert=str.upper)
        elsewhere: Any = LazyAttribute(source="_part")

    holder: Any = Holder()
    holder._source = SimpleNamespace(plain="text")
    holder._part = SimpleNamespace(elsewhere="part")
    values = (holder.plain, holder.renamed, holder.converted, holder.elsewhere)
    assert values == ("text", "text", "TEXT", "part")
    holder._source.plain = "other"
    assert holder.plain == "text"
    holder.plain = "assigned"
    assert (holder.plain, holder.renamed) == ("assigned", "text")


def test_missing_attributes_of_the_source_are_errors() -> None:
    cause = make_cause(LazyWatchingCause, SimpleNamespace())
    with pytest.raises(AttributeError, match="memo"):
        assert cause.memo


def test_arguments_are_those_of_the_object_and_of_the_kind() -> None:
    made = source()
    cause = make_cause(LazyWatchingCause, made)
    assert isinstance(cause, WatchingCause)
    kwargs = cause.kwargs
    assert kwargs.keys() == SHARED | {"type", "event"}
    assert (kwargs["uid"], kwargs["name"], kwargs["namespace"]) == ("u", "n", "ns")
    assert (kwargs["logger"], kwargs["type"]) == ("the local_logger", "the type")
    assert kwargs["body"] is made.body and kwargs["spec"] is made.body.spec
    assert kwargs["meta"] is made.body.metadata and kwargs["labels"] is made.body.metadata.labels


def test_arguments_are_the_same_for_all_handlers_in_separate_dicts() -> None:
    cause = make_cause(LazyWatchingCause, source())
    kwargs = cause.kwargs
    kwargs["extra"] = 1
    assert "extra" not in cause.kwargs and cause.kwargs["labels"] is kwargs["labels"]


def test_indices_win_over_all_other_arguments() -> None:
    cause = make_cause(LazyWatchingCause, source(indices={"retry": "index", "spec": "index"}))
    kwargs = cause.kwargs
    Attempt(label="", errors="temporary", backoff=1, started=0).add_arguments(kwargs, "param")
    assert (kwargs["retry"], kwargs["spec"], kwargs["param"]) == ("index", "index", "param")


def test_copies_have_separate_attributes_and_arguments() -> None:
    change = SimpleNamespace(initial=False, reason="create", diff=[("add", (), None, {})], old=None, new={})
    cause = make_cause(LazyChangingCause, source(), change)
    copied = dataclasses.replace(cause, new="field", patch=Patch())
    assert isinstance(copied, ChangingCause) and copied.kwargs.keys() == cause.kwargs.keys()
    assert (copied.kwargs["new"], cause.kwargs["new"]) == ("field", {})
    assert copied.kwargs["patch"] is copied.patch is not cause.patch
    assert copied.kwargs["name"] == "n" and copied.kwargs["diff"] == cause.diff


def test_bodies_of_plain_dicts_name_their_objects() -> None:
    cause = make_cause(LazyWatchingCause, source(object=None, body=Body(OBJECT)))
    assert (cause.kwargs["uid"], cause.kwargs["name"], cause.kwargs["namespace"]) == ("u", "n", "ns")


@pytest.mark.parametrize("started", [0, 1, 999_999, 86_400_000_000, 1_764_130_000_123_456])
def test_attempts_start_in_utc_with_microseconds(started: int) -> None:
    kwargs: dict[str, Any] = {}
    attempt = Attempt(label="", errors="temporary", backoff=1, started=started, retry=3)
    before = datetime.datetime.now(datetime.UTC)
    attempt.add_arguments(kwargs, None)
    after = datetime.datetime.now(datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert kwargs.keys() == {"param", "retry", "started", "runtime"}
    assert kwargs["started"] == epoch + datetime.timedelta(microseconds=started)
    assert kwargs["started"].tzinfo is datetime.UTC and kwargs["retry"] == 3
    margin = datetime.timedelta(seconds=1)
    assert before - kwargs["started"] - margin <= kwargs["runtime"] <= after - kwargs["started"] + margin


def test_the_runtime_is_negative_if_the_clock_went_back() -> None:
    kwargs: dict[str, Any] = {}
    started = Attempt.now() + 3_600_000_000
    Attempt(label="", errors="temporary", backoff=1, started=started).add_arguments(kwargs, None)
    assert datetime.timedelta(hours=-1) <= kwargs["runtime"] < datetime.timedelta(minutes=-59)
