"""Selects widgets by every kind of filter."""

import kopf


def declare(id, **filters):
    @kopf.on.create("widgets", id=id, **filters)
    def handler(memo, name, **_):
        memo.calls.append((id, name))


declare("labelled", labels={"team": kopf.PRESENT})
declare("red_team", labels={"team": "red"})
declare("teamless", labels={"team": kopf.ABSENT})
declare("called", labels={"team": lambda value, **_: value in ("red", "blue")})
declare("annotated", annotations={"example.com/note": "yes"})
declare("big", when=lambda spec, **_: spec.get("size", 0) > 10)
declare("both", when=kopf.all_([lambda spec, **_: spec.get("size") == 20, lambda name, **_: name == "b"]))
declare("sized", field="spec.size", value=20)


class Above:
    """A value that is equal to others."""

    def __init__(self, limit):
        self.limit = limit

    def __eq__(self, other):
        return isinstance(other, int) and other > self.limit

    __hash__ = None


declare("above", field="spec.size", value=Above(15))
declare("never", field="spec.size", value={20})
