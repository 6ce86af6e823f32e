"""Options of the client: where mistakes in them are errors."""

import pytest
from kopf._runtime.client.options import View


def test_invalid_headers_are_errors_where_they_are_added():
    with pytest.raises(ValueError, match="header"):
        View().using(headers={"in valid": "x"})


@pytest.mark.parametrize(
    "options", [{"timeout": 0.0}, {"timeout": float("inf")}, {"validation": "sometimes"}]
)
def test_invalid_options_are_errors_where_they_are_set(options):
    with pytest.raises(ValueError, match="must be"):
        View(**options)


def test_views_with_other_options_have_their_own_native_options():
    view = View(namespace="ns")
    assert view.native is view.native
    assert view.using(dry_run=True).native is not view.native
