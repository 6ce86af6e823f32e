"""Tracebacks of errors: which errors have one, and its shown frames."""

import traceback

import kopf
import pytest
from kopf._objects.credentials import LoginError
from kopf._runtime import errors


def raised(fn, *args, **kwargs):
    with pytest.raises(Exception) as caught:
        fn(*args, **kwargs)
    return caught.value


def names(tb):
    return [frame.name for frame in traceback.extract_tb(tb)]


def test_frames_of_kopf_are_not_shown_around_those_of_the_author():
    def handler(spec, **_):
        return spec["absent"]

    spec = kopf.Body({"spec": {}}).spec
    error = raised(handler, spec)
    assert names(error.__traceback__)[-1] != "handler", "a frame of Kopf is below"
    shown = names(errors.author_traceback(error.__traceback__))
    assert shown[-1] == "handler"


def test_tracebacks_without_the_author_stay_as_they_are():
    error = raised(kopf.OperatorRegistry()._activities.append)
    own = error.__traceback__.tb_next
    assert errors.author_traceback(own) is own


def test_libraries_below_the_author_are_shown():
    import json

    def handler():
        json.loads("{")

    error = raised(handler)
    shown = names(errors.author_traceback(error.__traceback__))
    assert shown[-1] in ("raw_decode", "decode")


@pytest.mark.parametrize(
    "filename, is_author",
    [
        (errors.__file__, False),
        (traceback.__file__, False),
        ("<frozen importlib._bootstrap>", False),
        ("uvloop/loop.pyx", False),
        ("/usr/lib/python3.11/site-packages/requests/api.py", True),
        ("/home/me/handlers.py", True),
        ("<string>", True),
    ],
)
def test_files_belong_to_the_author_or_not(filename, is_author):
    assert errors.is_author_file(filename) == is_author


def test_errors_explain_themselves_unless_they_come_from_the_author():
    assert errors.is_self_explanatory(errors.EngineError("no such port"))
    assert errors.is_self_explanatory(LoginError("no credentials"))
    assert not errors.is_self_explanatory(ValueError("a defect"))

    def login():
        raise LoginError("mine")

    assert not errors.is_self_explanatory(raised(login))
    assert issubclass(errors.EngineError, RuntimeError), "as before it had a separate class"


@pytest.mark.parametrize(
    "name, hint", [("spec", "patch.spec[...]"), ("meta", "patch.meta[...]"), ("status", "patch.status[...]")]
)
def test_changes_of_what_is_only_for_reading_are_explained(name, hint):
    body = kopf.Body({"spec": {}, "metadata": {}, "status": {}})
    view = getattr(body, name)

    def handler():
        view["x"] = 1

    def remove():
        del view["x"]

    for fn in (handler, remove):
        error = raised(fn)
        errors.add_hint(error)
        assert error.__notes__ == [f"Handlers change the object by the patch: {hint} = value (None removes)."]


def test_other_errors_are_not_explained():
    for error in (TypeError("'tuple' object does not support item assignment"), ValueError("x"), TypeError()):
        errors.add_hint(error)
        assert not hasattr(error, "__notes__")


class OwnKeyError(KeyError):
    pass


class MessageKeyError(KeyError):
    __str__ = Exception.__str__


@pytest.mark.parametrize(
    "error, message",
    [
        (KeyError("x"), "KeyError: 'x'"),
        (OwnKeyError("x"), "OwnKeyError: 'x'"),
        (MessageKeyError("no such name"), "no such name"),
        (KeyError(), "KeyError()"),
        (IndexError("list index out of range"), "list index out of range"),
        (ValueError(), "ValueError()"),
    ],
)
def test_a_key_alone_is_no_message(error, message):
    assert errors.message_of(error) == message
