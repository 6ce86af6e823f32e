"""Handle changes of a menu: the whole diff, a single field, and a new value."""

import kopf


@kopf.on.create("menus")
@kopf.on.update("menus")
def publish(reason, diff, logger, **_):
    for action, field, old, new in diff:
        logger.info(f"{reason}: {action} {'.'.join(field)}: {old!r} => {new!r}")


@kopf.on.field("menus", field="spec.price", old=kopf.PRESENT, new=kopf.PRESENT)
def reprice(old, new, patch, **_):
    trend = "up" if new > old else "down"
    patch.metadata.labels["price-trend"] = trend
    return {"from": old, "to": new}


@kopf.on.update("menus", field="spec.season", new="winter")
def warm_up(logger, **_):
    logger.info("Soups go to the first page.")
