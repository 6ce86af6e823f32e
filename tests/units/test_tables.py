"""Tables of commands: they fit the width with any texts."""

import random
import string

import pytest
from kopf._cli.tables import WIDTH, format_age, format_table

HEADER = ("NAMESPACE", "NAME", "STATE", "REASON", "DONE", "ATTEMPT", "NEXT", "SINCE", "MESSAGE")


def test_columns_are_as_wide_as_their_texts():
    rows = [("web", "home", "HTTP\n 503"), ("x", "blog", "")]
    assert format_table(("NAMESPACE", "NAME", "MESSAGE"), rows) == [
        "NAMESPACE  NAME  MESSAGE",
        "web        home  HTTP 503",
        "x          blog",
    ]


@pytest.mark.parametrize("seed", range(50))
def test_tables_fit_the_width(seed):
    rng = random.Random(seed)

    def text() -> str:
        return "".join(rng.choices(string.ascii_letters, k=rng.choice([0, 1, 5, 20, 63, 253])))

    rows = [[text() for _ in HEADER] for _ in range(5)]
    lines = format_table(HEADER, rows)
    assert len(lines) == 6 and max(map(len, lines)) <= WIDTH
    assert max(map(len, format_table(HEADER, rows, width=None))) >= max(map(len, lines))


def test_the_last_column_is_cut_first():
    [_, line] = format_table(HEADER[-2:], [("n" * 40, "m" * 200)])
    assert line == "n" * 40 + "  " + "m" * 57 + "…"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-3, "0s"), (0.5, "0s"), (42, "42s"), (60, "1m"), (7199, "1h"), (3 * 86_400, "3d")]
)
def test_ages_are_in_the_largest_unit(seconds, shown):
    assert format_age(seconds) == shown
