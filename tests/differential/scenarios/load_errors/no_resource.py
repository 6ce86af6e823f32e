"""A handler without a resource."""

import kopf


@kopf.on.create()
def no_resource(**_):
    pass
