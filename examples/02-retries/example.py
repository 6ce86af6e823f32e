"""Book a table for a reservation: retry while all tables are taken, give up if the party is too large."""

import kopf

FREE_AFTER_ATTEMPTS = 2
LARGEST_TABLE = 12


@kopf.on.create("reservations", retries=5, backoff=1)
def book(spec, retry, logger, **_):
    if spec["seats"] > LARGEST_TABLE:
        raise kopf.PermanentError(f"There is no table for {spec['seats']}.")
    if retry < FREE_AFTER_ATTEMPTS:
        raise kopf.TemporaryError("All tables are taken.", delay=1)
    logger.info(f"A table for {spec['seats']} is booked.")
    return {"table": 7, "attempts": retry + 1}


@kopf.on.create("reservations", errors=kopf.ErrorsMode.PERMANENT)
def remind(spec, **_):
    # A missing key raises KeyError; with this error mode, Kopf does not retry the handler.
    return f"Call {spec['phone']}."
