"""How the output of a command is compared with the page that shows it."""

from scripts import console


def test_columns_and_ages_may_differ():
    shown = "sessions   2       2       256      12s"
    assert console.is_shown(shown, "sessions        2     2  256   1m30s")
    assert not console.is_shown(shown, "sessions   2       1       256      12s")
    assert not console.is_shown(shown, "sessions   2       2       256      never")
    assert not console.is_shown("a b", "ab")


def test_three_dots_are_any_text():
    assert console.is_shown("passed in ...s", "passed in 1.25s")
    assert not console.is_shown("passed in ...s", "failed in 1.25s")


def test_a_shown_error_is_that_of_a_failed_command():
    assert console.shows_failure(['Error from server: admission webhook "x" denied the request: too much.'])
    assert console.shows_failure(["Error from server (Forbidden): no"])
    assert console.shows_failure(['typo.py:8: error: "PostingSettings" has no attribute "enable"', "Found 1"])
    assert not console.shows_failure(["Errors are retried.", "error: 0", "0 errors"])
    assert not console.shows_failure([])
