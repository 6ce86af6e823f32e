"""Data classes that are cheap to define. It owns how they look and compare, once for all of them, and when
their constructors are made.

What `dataclass` generates for a class is compiled anew at each start: there are dozens of them, and most
of that is never used. So, they are declared with `record`, and inherit these.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

__all__ = ["FrozenRecord", "Record", "record"]


class Record:
    """Looks and compares as other data classes do: by all its fields that are to be shown."""

    @reprlib.recursive_repr()
    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names())
        return f"{type(self).__qualname__}({fields})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    __hash__: Any = None

    @classmethod
    def _names(cls) -> tuple[str, ...]:
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        return tuple(field.name for field in fields if field.repr)

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._names())


class FrozenRecord(Record):
    """The same for those that never change: they can be keys."""

    def __hash__(self) -> int:
        return hash(self._values())

    # Constructors assign each field once.
    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or name not in self.__dataclass_fields__:  # type: ignore[attr-defined]
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


class _Constructor:
    """Stands for `__init__` of a record until somebody looks at it, or calls it with arguments."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Callable[..., None]:
        if not isinstance(instance, self._cls):  # somebody looks at the class
            return self._generate().__get__(instance, owner)

        def construct(*args: Any, **kwargs: Any) -> None:
            if args or kwargs or not self._fill(instance):
                self._generate()(instance, *args, **kwargs)

        return construct

    def _fill(self, instance: Any) -> bool:
        """Set the defaults, if they are all that there is to do."""
        missing = dataclasses.MISSING
        if hasattr(self._cls, "__post_init__"):
            return False
        for field in dataclasses.fields(self._cls):
            if field.default is not missing:
                setattr(instance, field.name, field.default)
            elif field.default_factory is not missing:
                setattr(instance, field.name, field.default_factory())
            else:
                return False
        return True

    # It is that of a child that adds nothing.
    def _generate(self) -> FunctionType:
        cls = self._cls
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        child: Any = type(cls.__name__, (cls,), names)
        generated: FunctionType = dataclasses.dataclass(repr=False, eq=False)(child).__init__
        self._cls.__init__ = generated
        return generated


def _record(cls: type[Any] | None = None, *, frozen: bool = False) -> Any:
    """The same as `dataclass`, for children of `Record`; if they are frozen, of `FrozenRecord`."""
    if cls is None:
        return _record  # what is frozen is so by its parent: see above
    cls = dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    cls.__init__ = _Constructor(cls)
    return cls


if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    record = _record
