"""Data classes with shared methods behave as those whose methods are generated."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from kopf._intents.causes import ActivityCause
from kopf._intents.handlers import ActivityHandler, TimerHandler, WatchingHandler
from kopf._intents.selectors import Selector
from kopf._intents.settings import PostingSettings
from kopf._objects.credentials import AiohttpSession, KubeContext
from kopf._objects.dataclass_methods import DataclassMethods, FrozenDataclassMethods


@dataclasses.dataclass(eq=False, repr=False)
class Shared(DataclassMethods):
    name: str
    hidden: Any = dataclasses.field(default=0, repr=False)
    ignored: Any = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SharedFrozen(FrozenDataclassMethods):
    name: str
    hidden: Any = dataclasses.field(default=0, repr=False)
    ignored: Any = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass
class Generated:
    name: str
    hidden: Any = dataclasses.field(default=0, repr=False)
    ignored: Any = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(frozen=True)
class GeneratedFrozen:
    name: str
    hidden: Any = dataclasses.field(default=0, repr=False)
    ignored: Any = dataclasses.field(default=0, compare=False)


PAIRS = [(Shared, Generated), (SharedFrozen, GeneratedFrozen)]


@pytest.mark.parametrize(("shared", "generated"), PAIRS)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", 1, 1), ("a", 1, 1)),
        (("a", 1, 1), ("a", 1, 2)),
        (("a", 1, 1), ("a", 2, 1)),
        (("a", 1, 1), ("b", 1, 1)),
        (("a", 1, 1), ("a", 1.0, 1)),
    ],
)
def test_equality(shared: Any, generated: Any, one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    expected = generated(*one) == generated(*other)
    assert (shared(*one) == shared(*other)) is expected
    assert (shared(*one) != shared(*other)) is not expected


@pytest.mark.parametrize(("shared", "generated"), PAIRS)
def test_instances_of_other_classes_differ(shared: Any, generated: Any) -> None:
    class Derived(shared):
        pass

    assert shared("a") != generated("a")
    assert shared("a") != Derived("a")
    assert Derived("a") == Derived("a")
    assert shared("a") != "a"


def test_hashes() -> None:
    assert hash(SharedFrozen("a", 1, 2)) == hash(GeneratedFrozen("a", 1, 2)) == hash(SharedFrozen("a", 1, 3))
    assert len({SharedFrozen("a"), SharedFrozen("a"), SharedFrozen("b")}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Shared("a"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(SharedFrozen("a", []))


@pytest.mark.parametrize(("shared", "generated"), PAIRS)
def test_representations(shared: Any, generated: Any) -> None:
    expected = repr(generated("a", 1, [2])).replace(generated.__qualname__, shared.__qualname__)
    assert repr(shared("a", 1, [2])) == expected == f"{shared.__qualname__}(name='a', ignored=[2])"


def test_recursive_representations() -> None:
    value = Shared("a")
    value.ignored = [value]
    assert repr(value) == "Shared(name='a', ignored=[...])"


@pytest.mark.parametrize("do", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
@pytest.mark.parametrize("value", [Shared("a", 1, 2), SharedFrozen("a", 1, 2)])
def test_copies(do: Callable[[Any], Any], value: Any) -> None:
    assert do(value) == value and do(value).ignored == 2 and dataclasses.replace(value, name="b").name == "b"


@pytest.mark.parametrize("frozen", [ActivityHandler, WatchingHandler, TimerHandler, Selector, KubeContext])
def test_frozen_classes_stay_frozen(frozen: Any) -> None:
    instance = object.__new__(frozen)
    name = dataclasses.fields(frozen)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(instance, name, "x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(instance, name)


def test_classes_of_users_can_be_derived() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Context(AiohttpSession):
        region: str

    one, other = (Context(server="s", aiohttp_session=None, region=region) for region in "ab")
    assert one != other and hash(one) != hash(other)
    assert repr(one).endswith(
        "server='s', priority=0, default_namespace=None, expiration=None, aiohttp_session=None, region='a')"
    )


def test_classes_without_hashes() -> None:
    assert ActivityCause.__hash__ is None
    assert PostingSettings.__hash__ is None
    assert PostingSettings() == PostingSettings() != PostingSettings(loggers=True)
