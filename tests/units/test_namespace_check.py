"""The check of namespace patterns by `kopf check`, with all, some and no permissions."""

import pytest
from kopf._cli.namespace_check import describe_unmatched
from kopf._objects.apierrors import ApiError, Forbidden, NotFound

NAMESPACES = ("default", "team-a")


class Server:
    """Answers as the client of an API server, with these permissions for namespaces."""

    def __init__(self, *verbs):
        self.verbs = verbs

    def list(self, kind, *, metadata_only):
        assert kind == "namespaces" and metadata_only
        self.check("list")
        return [{"metadata": {"name": known}} for known in NAMESPACES]

    def get(self, kind, name, *, metadata_only):
        assert kind == "namespaces" and metadata_only
        self.check("get")
        if name not in NAMESPACES:
            raise NotFound(code=404)
        return {"metadata": {"name": name}}

    def check(self, verb):
        if verb not in self.verbs:
            raise Forbidden(code=403)


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
        def check(self, verb):
            raise ApiError(code=500)

    with pytest.raises(ApiError):
        list(describe_unmatched(Broken(), ["x"]))
