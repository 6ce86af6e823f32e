"""Finds guests by their rooms: an index is a view of the cluster in memory, always up to date."""

import kopf


@kopf.index("guests")
def guests_by_room(spec, name, **_):
    return {spec["room"]: name}


@kopf.on.create("deliveries", group="hotel.examples.kopf.dev")
@kopf.on.field("deliveries", group="hotel.examples.kopf.dev", field="spec.room")
def deliver(spec, guests_by_room, retry, **_):
    recipients = sorted(guests_by_room.get(spec["room"], []))
    if not recipients:
        raise kopf.TemporaryError(f"Nobody lives in the room {spec['room']} yet.", delay=5)
    return {"recipients": recipients, "attempts": retry + 1}
