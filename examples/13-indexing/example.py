"""Index guests by their rooms: an index is an in-memory view of objects, which Kopf keeps up to date."""

import kopf


@kopf.index("guests", field="spec.room")
def guests_by_room(spec, name, **_):
    return {spec["room"]: name}


@kopf.on.create("guests", field="spec.room")
@kopf.on.update("guests", field="spec.room")
def move_in(spec, name, guests_by_room, **_):
    return {"shares with": sorted(other for other in guests_by_room[spec["room"]] if other != name)}
