"""Which functions get the argument `api`, and which ones name it."""

import functools

import pytest
from kopf._runtime.api_argument import named_arguments, required_arguments


class Handler:
    def __call__(self, api, **_):
        pass

    def method(self, *, api, **_):
        pass

    def other(self, **api):
        pass


def plain(spec, api, **_):
    pass


@functools.wraps(plain)
def wrapper(**kwargs):
    pass


@pytest.mark.parametrize(
    "fn",
    [
        plain,
        lambda *, api, **_: None,
        Handler(),
        Handler().method,
        functools.partial(plain, spec=1),
    ],
)
def test_functions_that_require_it(fn):
    assert "api" in required_arguments(fn)
    assert "api" in named_arguments(fn)


@pytest.mark.parametrize(
    "fn",
    [
        functools.partial(plain, api=1),
        functools.partial(plain, api=None),
        lambda *, api=1, **_: None,
        lambda api=None, **_: None,
    ],
)
def test_functions_with_a_default_value(fn):
    assert "api" not in required_arguments(fn)
    assert "api" in named_arguments(fn)


@pytest.mark.parametrize(
    "fn",
    [
        lambda **api: None,
        lambda *api: None,
        lambda api, /, **_: None,
        lambda **_: (lambda api: api)(1),
        wrapper,
        Handler().other,
        print,
        functools.partial(plain, 1, 2),
    ],
)
def test_functions_that_do_not_name_it(fn):
    assert "api" not in named_arguments(fn)


def test_local_variables_are_not_arguments():
    def fn(**_):
        api = 1
        return api

    assert "api" not in named_arguments(fn)
