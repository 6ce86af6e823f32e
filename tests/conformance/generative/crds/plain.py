"""CRDs in the style of projects for generic operators."""

from __future__ import annotations

from .blocks import TIME, define
from .schemas import anything, f, mapping

CASES = [
    define(
        "plain",
        "Widget",
        None,
        top={
            "data": f(
                {"size": f(1, default=1), "color": f("red", default="red", enum=["red", "green"])}, default={}
            ),
            "note": f("x", nullable=True, default="none"),
            "matrix": [[1, 2]],
            "flags": mapping({"a": True}),
            "time": f(TIME, format="date-time"),
        },
        version="v1alpha1",
        columns=(
            "Size integer .data.size",
            "Color string .data.color",
            "Note string .note",
            "Matrix string .matrix",
            "Flags string .flags",
        ),
        samples=({}, {"data": {}}, {"data": {"color": "blue"}}, {"note": None, "time": "yesterday"}),
    ),
    define(
        "plain",
        "Gadget",
        anything({"x": 1}),
        scope="Cluster",
        columns=("X string .spec.x",),
        names={"shortNames": ["styleg"]},
    ),
    define(
        "plain",
        "Closed",
        f(
            {
                "mode!": f("a", enum=["a", "b"]),
                "a": f({"x!": 1}),
                "b?": f({"y!": "z"}),
                "secret": f("s", minLength=1, allOf=[{"pattern": "^[a-z]+$"}, {"maxLength": 8}]),
                "count": f(3, not_={"enum": [4]}),
                "any": f(5, free=True, int_or_string=True),
                "list": f([1, 2, 3], maxItems=4, minItems=1),
            },
            oneOf=[
                {"properties": {"mode": {"enum": ["a"]}}, "required": ["a"]},
                {"properties": {"mode": {"enum": ["b"]}}, "required": ["b"]},
            ],
        ),
        samples=({"spec": {"mode": "b", "b": {"y": "z"}}}, {"spec": {"mode": "b", "a": {"x": 1}}}),
    ),
]
