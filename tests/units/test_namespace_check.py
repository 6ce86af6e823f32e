"""The check of namespace patterns at the start, with all, some and no permissions."""

import kopf
import pytest
from kopf._cli.namespace_check import describe_unmatched, warn_in_background
from kopf.testing import ApiError

NAMESPACES = ("default", "team-a")


class Server:
    """Answers as an API server, with these permissions for namespaces."""

    def __init__(self, *verbs):
        self.verbs = verbs

    def call(self, method, path):
        assert method == "GET"
        name = path.removeprefix("/api/v1/namespaces").strip("/")
        if ("get" if name else "list") not in self.verbs:
            raise ApiError(403, "Forbidden", "namespaces are forbidden")
        if not name:
            return {"items": [{"metadata": {"name": known}} for known in NAMESPACES]}
        if name not in NAMESPACES:
            raise ApiError(404, "NotFound", f"namespaces {name} not found")
        return {"metadata": {"name": name}}


@pytest.mark.parametrize(
    ("verbs", "expected"),
    [
        (
            ("list", "get"),
            [
                "No namespace matches 'defualt' yet; did you mean 'default'?",
                "No namespace matches 'x-*' yet.",
            ],
        ),
        (("get",), ["No namespace matches 'defualt' yet."]),
        ((), []),
    ],
)
def test_only_what_is_known_is_reported(verbs, expected):
    patterns = ["default", "defualt", "team-*", "x-*"]
    assert list(describe_unmatched(Server(*verbs), patterns)) == expected


def test_other_errors_are_raised():
    class Broken(Server):
        def call(self, method, path):
            raise ApiError(500, "InternalError", "broken")

    with pytest.raises(ApiError):
        list(describe_unmatched(Broken(), ["x"]))


def test_login_handlers_of_the_author_are_not_called_twice():
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(lambda **_: None)
    assert warn_in_background(registry, ["x"]) is None
    assert warn_in_background(kopf.OperatorRegistry(), []) is None
