"""Values of all sorts: unicode, escapes, numbers, empty ones, odd keys; a spec of 100 kB."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create(
        "widgets",
        "w",
        {
            "ключ": "значение",
            "emoji": "👩‍👩‍👧 \u202e rtl",
            "escapes": 'tab\t newline\n quote" back\\slash \u0001 \u2028',
            "integer": 2**53 + 1,
            "negative": -1,
            "float": 1.5,
            "whole": 2.0,
            "tiny": 1e-9,
            "huge": 1e300,
            "empty": {"dict": {}, "list": [], "string": "", "zero": 0, "false": False, "null": None},
            "odd/key.with.dots": "x",
            "": "an empty key",
            "mixed": [1, "a", None, {"b": [True, []]}],
        },
    )
    s.settle("created")
    s.patch(
        "widgets", "w", {"spec": {"ключ": "другое", "escapes": None, "whole": 2, "mixed": [1, "a", None]}}
    )
    s.settle("changed")
    s.patch("widgets", "w", {"spec": {"big": {f"key{n}": "ж" * 100 for n in range(500)}}})
    s.settle("big")
    s.patch("widgets", "w", {"spec": {"big": {"key7": "small", "key8": None}}})
    s.settle("a small change in the big")
    s.stop()
