"""Records are data classes, but cheap ones: nobody can see when their constructors are made."""

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import kopf
import pytest
from kopf._intents import causes, handlers, lifecycles, selectors, settings
from kopf._objects.records import FrozenRecord, Record, _Constructor, record

KINDS = [
    kind
    for module in (settings, handlers, causes, selectors, lifecycles)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Record) and dataclasses.is_dataclass(kind)
]


def fresh() -> Any:
    @record
    class Fresh(Record):
        """A class that nobody has looked at."""

        a: int
        b: list[int] = dataclasses.field(default_factory=list)
        c: int = 5

    return Fresh


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_signatures_are_those_of_data_classes(kind: Any) -> None:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    twin: Any = dataclasses.dataclass(repr=False, eq=False)(type(kind.__name__, (kind,), names))
    assert inspect.signature(kind) == inspect.signature(twin)
    assert kind.__init__.__annotations__ == twin.__init__.__annotations__
    assert kind.__init__.__qualname__ == f"{kind.__qualname__}.__init__"
    assert kind.__match_args__ == twin.__match_args__


def test_there_are_dozens_of_them() -> None:
    assert len(KINDS) > 30


def test_the_constructor_is_made_when_it_is_called() -> None:
    kind = fresh()
    assert isinstance(vars(kind)["__init__"], _Constructor)
    assert kind(1, c=6) == kind(a=1, b=[], c=6)
    assert inspect.isfunction(vars(kind)["__init__"])
    assert repr(kind(1)) == "fresh.<locals>.Fresh(a=1, b=[], c=5)"


@pytest.mark.parametrize("arguments", [{}, {"a": 1, "nope": 2}, {"b": []}])
def test_wrong_arguments_are_refused_from_the_first_call_on(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"Fresh\.__init__"):
        fresh()(**arguments)


def test_children_call_the_constructors_of_their_parents() -> None:
    class Child(fresh()):
        def __init__(self) -> None:
            super().__init__(7)

    child = Child()
    assert (child.a, child.b, child.c) == (7, [], 5)


def test_defaults_are_set_without_a_constructor() -> None:
    @record
    class Defaults(Record):
        """All of its fields have defaults."""

        a: list[int] = dataclasses.field(default_factory=list)
        b: int = 5

    one, two = Defaults(), Defaults()
    assert isinstance(vars(Defaults)["__init__"], _Constructor)
    assert vars(one) == {"a": [], "b": 5}
    assert one.a is not two.a
    assert Defaults([1]) != one == two


def test_settings_are_as_separate_as_ever() -> None:
    one, two = kopf.OperatorSettings().posting, kopf.OperatorSettings().posting
    assert one == two
    one.level = 5
    assert one != two
    assert dataclasses.replace(one, enabled=False).level == 5
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one


def test_selectors_without_names_are_refused() -> None:
    with pytest.raises(TypeError, match="Unspecific"):
        selectors.Selector()


def test_frozen_ones_stay_as_they_are() -> None:
    progress: Any = lifecycles.Progress(retries=3)
    for name in ("retries", "nope"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(progress, name, 4)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(progress, name)
    assert isinstance(progress, FrozenRecord)
    assert {progress: 1}[lifecycles.Progress(3)] == 1
    assert copy.copy(progress) == pickle.loads(pickle.dumps(progress)) == progress
    assert dataclasses.replace(progress, retries=4).retries == 4
