"""Log formats, and the loggers of objects."""

import dataclasses
import enum
import json
import logging

import kopf
import pytest
from kopf._runtime import loggers

OWNER = kopf.Body(
    {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "own", "uid": "u", "namespace": "ns", "labels": {"a": "b"}},
    }
)


def formatted(formatter, **extra):
    record = logging.makeLogRecord(
        {"name": "kopf.objects", "levelno": 25, "msg": "hello %s", "args": ("x",), **extra}
    )
    return formatter.format(record)


@pytest.mark.contract("engine 14")
def test_text_logs_have_prefixes():
    ref = {"name": "n", "namespace": "ns"}
    formatter = loggers.make_formatter(kopf.LogFormat.PLAIN, None)
    assert formatted(formatter, k8s_ref=ref) == "[ns/n] hello x"
    assert formatted(formatter, k8s_ref={"name": "n"}) == "[n] hello x"
    assert formatted(loggers.make_formatter(kopf.LogFormat.PLAIN), k8s_ref=ref) == "hello x"


@pytest.mark.contract("engine 14")
def test_json_logs_have_objects():
    ref = {"name": "n", "namespace": None}
    data = json.loads(
        formatted(loggers.make_formatter(kopf.LogFormat.JSON), k8s_ref=ref, settings=1, user="y")
    )
    assert data.pop("timestamp").endswith("+00:00")
    assert data == {"message": "hello x", "user": "y", "object": ref, "severity": "warn"}


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Unprintable(Exception):
    def __str__(self):
        raise ValueError

    __repr__ = __str__


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (ValueError("boom"), "ValueError: boom"),
        (ValueError, "ValueError"),
        (Color.RED, "red"),
        (Color, ["red"]),
        (Point(1), {"x": 1}),
        (Point, "Point"),
        (b"\xfb\xff", "-_8="),
        (kopf.Body({"kind": "K"}), {"kind": "K"}),
        (Unprintable(), "Unprintable: <Unprintable>"),
    ],
)
def test_values_in_json_logs(value, shown):
    line = formatted(loggers.make_formatter(kopf.LogFormat.JSON), value=value)
    assert json.loads(line)["value"] == shown


def test_a_message_can_have_its_own_traceback():
    error = ValueError("boom")
    extra = {"args": (), "exc_info": (ValueError, error, None), "stack_info": "the stack"}
    formatter = loggers.make_formatter(kopf.LogFormat.JSON)
    data = json.loads(formatted(formatter, **extra, msg={"exc_info": "mine", "stack_info": ""}))
    assert (data["exc_info"], data["stack_info"]) == ("mine", "the stack")


def test_unknown_formats_are_rejected():
    with pytest.raises(ValueError, match="Unsupported log format: 5"):
        kopf.configure(log_format=5)


@pytest.mark.contract("engine 14", "api 3.10")
@pytest.mark.parametrize("body", [OWNER, dict(OWNER)])
def test_loggers_know_their_objects(caplog, body):
    settings = kopf.OperatorSettings()
    kopf.LocalObjectLogger(body=body, settings=settings).warning("m", extra={"k8s_skip": False})
    (record,) = caplog.records
    assert record.k8s_skip is True
    assert record.k8s_ref == {"apiVersion": "v1", "kind": "K", "name": "own", "uid": "u", "namespace": "ns"}
