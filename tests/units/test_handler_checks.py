"""Mistakes in declarations, found at the declaration or at the start of the operator."""

import functools
import re
import warnings

import kopf
import pytest
from kopf._intents.registries import activity_handlers, resource_handlers
from kopf._runtime import handler_checks
from kopf._runtime.functions import locate


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


def found(registry, indices=()):
    handlers = [*activity_handlers(registry).get_all_handlers(), *resource_handlers(registry)]
    return list(handler_checks.check(handlers, indices))


DECORATORS = {
    "startup": lambda registry: kopf.on.startup(registry=registry),
    "login": lambda registry: kopf.on.login(registry=registry),
    "validate": lambda registry: kopf.on.validate("x", registry=registry),
    "create": lambda registry: kopf.on.create("x", registry=registry),
    "event": lambda registry: kopf.on.event("x", registry=registry),
    "index": lambda registry: kopf.index("x", registry=registry),
    "daemon": lambda registry: kopf.daemon("x", registry=registry),
    "timer": lambda registry: kopf.timer("x", interval=1, registry=registry),
}
ARGUMENTS = {
    "startup": "settings memo logger param retry started runtime activity",
    "login": "settings memo logger",
    "validate": "body spec dryrun warnings userinfo headers sslpeer operation subresource old new diff patch",
    "create": "body spec meta status uid name namespace labels annotations old new diff reason patch retry",
    "event": "type event body spec logger param",
    "index": "body name namespace",
    "daemon": "stopped spec name memo",
    "timer": "spec name memo retry",
}


@pytest.mark.parametrize("decorator", DECORATORS)
def test_all_arguments_that_are_passed_are_known(registry, decorator):
    scope = {}
    exec(f"def fn({', '.join(ARGUMENTS[decorator].split())}, **_): pass", scope)
    DECORATORS[decorator](registry)(scope["fn"])
    assert found(registry) == []


@pytest.mark.parametrize("decorator", DECORATORS)
def test_misspelled_arguments_are_found(registry, decorator):
    @DECORATORS[decorator](registry)
    def fn(loger, **_):
        pass

    [text] = found(registry)
    assert "fn() (test_handler_checks.py:" in text
    assert "needs the argument 'loger', which Kopf does not pass to it; did you mean 'logger'?" in text


def test_arguments_with_defaults_indices_and_wrappers_are_fine(registry):
    def with_database(fn):
        @functools.wraps(fn)
        def wrapper(**kwargs):
            return fn(database=None, **kwargs)

        return wrapper

    @kopf.on.create("x", registry=registry)
    def one(mine=1, *, by_name, **_):
        pass

    @kopf.on.create("x", registry=registry)
    @with_database
    def two(database, **_):
        pass

    kopf.on.create("x", id="three", registry=registry)(functools.partial(one, by_name=1))
    assert len(found(registry)) == 1
    assert found(registry, indices=["by_name"]) == []


def test_functions_that_accept_too_little_are_found(registry):
    @kopf.on.create("x", registry=registry)
    def fn(name, spec):
        pass

    [text] = found(registry)
    assert text.endswith("must accept more arguments than it names: add **_ to them.")


class Asynchronous:
    async def __call__(self, **_): ...


def synchronous(**_): ...


@functools.wraps(synchronous)
async def wrapper(**_): ...


def generator(**_):
    yield


async def async_generator(**_):
    yield


@pytest.mark.parametrize(
    "fn, text",
    [
        (Asynchronous(), "Asynchronous() (test_handler_checks.py:{}) is an object whose __call__() is a"),
        (functools.partial(Asynchronous()), "as in kopf.on.create(...)(instance.__call__)."),
        (wrapper, "synchronous() (test_handler_checks.py:{}) is a synchronous function in a coroutine"),
        (functools.partial(wrapper), "declare it with `async def`, too, or wrap it without"),
        (
            generator,
            "generator() (test_handler_checks.py:{}) is a generator, which Kopf does not iterate over",
        ),
        (async_generator, "is a generator, which Kopf does not iterate over: remove `yield` from it."),
    ],
)
@pytest.mark.parametrize(
    "decorator", [kopf.on.startup, functools.partial(kopf.on.create, "x"), functools.partial(kopf.index, "x")]
)
def test_functions_whose_code_is_not_executed_are_found(registry, decorator, fn, text):
    decorator(id="fn", registry=registry)(fn)
    [finding] = found(registry)
    assert re.search(re.escape(text).replace(r"\{\}", r"\d+"), finding)


async def coroutine(**_): ...


@pytest.mark.parametrize(
    "fn",
    [
        coroutine,
        functools.partial(coroutine),
        functools.wraps(coroutine)(lambda **kwargs: coroutine(**kwargs)),
        Asynchronous().__call__,
    ],
)
def test_functions_that_are_awaited_are_fine(registry, fn):
    kopf.on.create("x", id="fn", registry=registry)(fn)
    assert found(registry) == []


def test_equal_ids_of_different_functions_for_the_same_objects_are_found(registry):
    @kopf.on.create("x", registry=registry)
    def one(**_):
        pass

    @kopf.on.create("x", id=one.__qualname__, registry=registry)
    def two(**_):
        pass

    [text] = found(registry)
    assert "have the same id" in text and "only one of them is called" in text


def test_equal_ids_of_a_file_that_is_loaded_twice_need_other_advice(registry):
    # Such as a file that Python has started as a script, and that `kopf run` loads again.
    for _ in range(2):

        @kopf.on.create("x", registry=registry)
        def one(**_):
            pass

    [text] = found(registry)
    assert text.startswith("Two handlers one() (test_handler_checks.py:")
    assert "have the same id" in text and "Load its file once, or set id=..." in text


@pytest.mark.parametrize(
    "other",
    [
        lambda registry: kopf.on.update("x", id="one", registry=registry),
        lambda registry: kopf.on.create("y", id="one", registry=registry),
        lambda registry: kopf.on.create("x", id="one", labels={"a": "b"}, registry=registry),
        lambda registry: kopf.on.create("x", id="two", registry=registry),
        lambda registry: kopf.on.event("x", id="one", registry=registry),
    ],
)
def test_equal_ids_are_fine_for_different_changes_and_objects(registry, other):
    kopf.on.create("x", id="one", registry=registry)(lambda **_: None)
    other(registry)(lambda **_: None)
    assert found(registry) == []


def test_one_function_for_several_changes_is_fine(registry):
    @kopf.on.resume("x", registry=registry)
    @kopf.on.create("x", registry=registry)
    @kopf.on.create("x", registry=registry)
    def fn(**_):
        pass

    assert found(registry) == []


def handlers():
    def with_rest(spec, **_): ...
    def only_rest(**_): ...
    def named(body): ...
    def two(name, namespace): ...

    return [with_rest, only_rest, named, two]


@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.event, kopf.daemon, kopf.timer, kopf.index])
@pytest.mark.parametrize("fn", handlers(), ids=lambda fn: fn.__name__)
def test_decorators_without_arguments_are_errors(decorator, fn):
    with pytest.raises(TypeError, match=rf"@kopf.on.{decorator.__name__} needs arguments"):
        decorator(fn)


def selectors():
    def by_resource(resource, **_): ...
    def by_anything(it): ...
    def wrapper(*args, **kwargs): ...

    return [by_resource, by_anything, wrapper, lambda name: True, lambda r, **_: True, str.isalpha]


@pytest.mark.parametrize("fn", selectors())
def test_functions_that_select_resources_are_no_mistake(registry, fn):
    kopf.on.event(fn, registry=registry)(lambda **_: None)
    assert len(registry._watching.get_all_handlers()) == 1


def test_options_and_parentheses_are_suggested():
    with pytest.raises(TypeError, match="did you mean 'retries'"):
        kopf.on.create("x", retry=1)
    with pytest.raises(TypeError, match="did you mean 'backoff'"):
        kopf.subhandler(backof=1)
    with pytest.raises(TypeError, match=r"needs parentheses: @kopf.on.startup\(\)"):
        kopf.on.startup(lambda **_: None)
    with pytest.raises(TypeError, match=r"needs parentheses: @kopf.subhandler\(\)"):
        kopf.subhandler(lambda **_: None)
    assert kopf.on.create.__name__ == "create" and kopf.on.create.__doc__


def test_unknown_settings_are_warned_of():
    settings = kopf.OperatorSettings()
    with pytest.warns(
        UserWarning, match="settings.posting has no 'enable'.*did you mean 'enabled'"
    ) as caught:
        settings.posting.enable = False
    assert caught[0].filename == __file__
    assert settings.posting.enable is False, "Kopf 1.45 accepts it, and so do we"
    with pytest.warns(UserWarning, match="^settings has no 'mine', and nothing reads it.$"):
        settings.mine = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings._mine = 1
        settings.execution.max_workers = 2
        settings.peering.namespaced = True
        settings.posting.enabled = False


def test_settings_show_what_is_not_by_default():
    settings = kopf.OperatorSettings()
    assert repr(settings) == "OperatorSettings()"
    settings.posting.enabled = False
    settings.execution.max_workers = 3
    settings.persistence.progress_storage = kopf.StatusProgressStorage()
    settings.watching.label_selectors["pods"] = "a=b"
    text = repr(settings)
    assert "posting=PostingSettings(enabled=False)" in text
    assert "execution=ExecutionSettings(max_workers=3)" in text
    assert "progress_storage=StatusProgressStorage(name='kopf', field=status.kopf.progress)" in text
    assert "'a=b'" in text
    assert "queueing" not in text


def test_objects_of_the_author_have_readable_texts(registry):
    kopf.on.create("x", registry=registry)(lambda **_: None)
    assert repr(registry).endswith("spawning=0, changing=1, webhooks=0>")
    assert repr(kopf.WebhookServer(port=1)) == "WebhookServer(port=1)"
    assert "prefix='p'" in repr(kopf.AnnotationsDiffBaseStorage(prefix="p"))
    from kopf.testing import Cluster, KopfRunner, Operator

    with Cluster() as cluster:
        assert cluster.url in repr(cluster)
        assert "not running" in repr(Operator(cluster))
    assert "not running" in repr(cluster)
    assert "not started" in repr(KopfRunner(["run"]))


class Called:
    def __call__(self, **_): ...


def test_functions_are_located_in_the_same_way_in_each_process():
    def fn(**_): ...

    line = fn.__code__.co_firstlineno
    expected = f"fn() (test_handler_checks.py:{line})"
    assert locate(fn) == expected
    assert locate(functools.partial(functools.partial(fn, a=1), b=2)) == expected
    line = Called.__call__.__code__.co_firstlineno
    assert locate(Called()) == f"Called() (test_handler_checks.py:{line})"
    assert locate(functools.partial(Called())) == f"Called() (test_handler_checks.py:{line})"
    assert locate(print) == "print()"
