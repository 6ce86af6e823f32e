"""What functions can see of their arguments: if in doubt, everything."""

import functools

import pytest
from kopf._intents.seeing import seen


def named(name, spec=None, *, body, **_): ...


async def asynchronous(name, **kwargs):
    return name


def looking(name, **kwargs):
    return kwargs


def closing(name, **kwargs):
    return lambda: kwargs


def revealing(name, **_):
    return locals()


def demanding(name, spec): ...


def positional(*args, **_): ...


def only_positional(name, /, **_): ...


class Operator:
    def method(self, name, **_): ...

    @classmethod
    def shared(cls, spec, **_): ...

    @staticmethod
    def alone(meta, **_): ...

    def __call__(self, name, **_): ...


@functools.wraps(named)
def wrapping(**kwargs):
    return named(**kwargs)


class Unhashable:
    __hash__ = None

    def __call__(self, **_): ...


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (named, {"name", "spec", "body"}),
        (asynchronous, {"name"}),
        (lambda name, **_: name, {"name"}),
        (Operator().method, {"name"}),
        (Operator.shared, {"spec"}),
        (Operator.alone, {"meta"}),
    ],
)
def test_unread_arguments_are_not_seen(fn, names):
    assert seen(fn) == names


@pytest.mark.parametrize(
    "fn",
    [
        looking,
        closing,
        revealing,
        demanding,
        positional,
        only_positional,
        wrapping,
        functools.partial(named, "x"),
        Operator(),
        Unhashable(),
        print,
    ],
)
def test_whoever_may_look_sees_everything(fn):
    assert seen(fn) is None
