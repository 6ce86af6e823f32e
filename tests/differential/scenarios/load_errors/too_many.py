"""A handler with too many names of a resource."""

import kopf


@kopf.on.create("a", "b", "c", "d")
def too_many(**_):
    pass
