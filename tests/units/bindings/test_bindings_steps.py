"""The steps of one event in Python, as ARCHITECTURE.md lists them, are those of a real call."""

import asyncio
import pathlib
import sys

from tests.support.event_steps import Step, steps


def python_calls(rows: list[Step]) -> list[tuple[str, str]]:
    return [(row.path.name, name) for row in rows if row.path.suffix == ".py" for name in row.functions]


def is_in_order(expected: list[tuple[str, str]], calls: list[tuple[str, str]]) -> bool:
    remaining = iter(calls)
    return all(one in remaining for one in expected)


def test_a_change_handler_is_called_and_completed_by_the_steps(rig, make_changing):
    before, after = [], []
    current = before

    async def fn(**_):
        nonlocal current
        current = after

    def observe(frame, event, _):
        if event == "call":
            current.append((pathlib.Path(frame.f_code.co_filename).name, frame.f_code.co_name))

    async def play():
        change = {"reason": "update", "old": {"spec": {"x": 1}}, "new": {"spec": {"x": 2}}}
        sys.setprofile(observe)
        try:
            [reply] = await rig(make_changing(fn)).play(("handle", [0]), **change)
        finally:
            sys.setprofile(None)
        assert reply["error"] is None

    asyncio.run(play())
    to_handler, to_request = (python_calls(part) for part in steps())
    # Those that wait for the handler are continued, which is no call.
    to_request = [one for one in to_request if one not in to_handler]
    assert len(to_handler) > 5 and len(to_request) > 2
    assert is_in_order(to_handler, before), before
    assert is_in_order(to_request, after), after
