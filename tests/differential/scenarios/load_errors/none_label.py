"""A handler with None as the value of a label."""

import kopf


@kopf.on.create("widgets", labels={"a": None})
def bad_label(**_):
    pass
