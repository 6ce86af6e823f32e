"""The order of the tests for several processes."""

import dataclasses
import pathlib
import re

import pytest

from tests.support import order


@dataclasses.dataclass(frozen=True)
class Item:
    """A test, as far as its order depends on it."""

    nodeid: str
    fixturenames: tuple[str, ...] = ()

    @property
    def path(self) -> pathlib.Path:
        return order.ROOT / self.nodeid.partition("::")[0]


@pytest.mark.parametrize("name", order.FIRST)
def test_the_first_tests_exist(name):
    path, _, test = name.partition("::")
    function, parameter = re.fullmatch(r"(\w+)(?:\[(.+)\])?", test).groups()
    assert f"def {function}(" in (order.ROOT / path).read_text()
    if parameter is not None:
        folder = (order.ROOT / path).parent
        assert any(f'"{parameter}"' in file.read_text() for file in folder.glob("*.py"))


def test_the_files_of_long_tests_exist():
    assert [path for path in order.LONGEST if not path.exists()] == []


@pytest.mark.parametrize("others", [0, 1, 5, 100])
@pytest.mark.parametrize("processes", [1, 2, 4, 6, 50])
def test_each_process_begins_with_a_first_test(processes, others):
    items = [Item(f"tests/units/test_it.py::test_{number}") for number in range(others)]
    items += [Item(name) for name in order.FIRST]
    ordered = order.in_parts(items, processes)
    assert sorted(ordered, key=str) == sorted(items, key=str)
    if others == 100:
        # As pytest-xdist deals them out.
        begin, beginnings = 0, []
        for number in range(processes):
            beginnings.append(ordered[begin].nodeid)
            begin += (len(ordered) - begin) // (processes - number)
        assert beginnings[: len(order.FIRST)] == order.FIRST[:processes]


@pytest.mark.parametrize("count", [0, 1, 7, 40])
@pytest.mark.parametrize("processes", [1, 2, 6, 50])
def test_tests_on_the_control_plane_are_the_last_of_each_process(count, processes):
    real = [Item(f"tests/real/test_it.py::test_{number}", (order.CONTROL_PLANE,)) for number in range(count)]
    items = [*real, *(Item(f"tests/units/test_it.py::test_{number}") for number in range(100))]
    items += [Item(name) for name in order.FIRST]
    ordered = order.in_parts(items, processes)
    assert sorted(ordered, key=str) == sorted(items, key=str)
    begin, counts = 0, []
    for number in range(processes):
        size = (len(ordered) - begin) // (processes - number)
        part = [order.is_real(item) for item in ordered[begin : begin + size]]
        assert part == sorted(part)
        counts.append(sum(part))
        begin += size
    assert max(counts) - min(counts) <= max(1, count // processes)
