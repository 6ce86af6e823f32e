"""Cron schedules: five fields of numbers, ranges, lists and steps; in UTC."""

import datetime

MINUTE, DAY = datetime.timedelta(minutes=1), datetime.timedelta(days=1)
BOUNDS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


def parse(text):
    """The sets of minutes, hours, days of the month, months, and days of the week (0 is Sunday)."""
    fields = text.split()
    if len(fields) != len(BOUNDS):
        raise ValueError(f"A schedule has five fields: {text!r}")
    return [_values(field, *bounds) for field, bounds in zip(fields, BOUNDS, strict=True)]


def _values(field, least, most):
    values = set()
    for part in field.split(","):
        numbers, _, step = part.partition("/")
        first, _, last = ("*", "", "") if numbers == "*" else numbers.partition("-")
        start = least if first == "*" else int(first)
        end = most if first == "*" or (step and not last) else int(last or first)
        if not least <= start <= end <= most:
            raise ValueError(f"{part!r} is not from {least} to {most}.")
        values.update(range(start, end + 1, int(step or 1)))
    return values


def next_after(schedule, time):
    """The first time of the schedule after this time; None if there is none within five years."""
    minutes, hours, days, months, weekdays = schedule
    time = time.replace(second=0, microsecond=0) + MINUTE
    limit = time + 5 * 366 * DAY
    while time < limit:
        if time.month not in months or time.day not in days or time.isoweekday() % 7 not in weekdays:
            time = time.replace(hour=0, minute=0) + DAY
        elif time.hour not in hours or time.minute not in minutes:
            time += MINUTE
        else:
            return time
    return None


def latest_between(schedule, start, end):
    """The last time of the schedule after the start and not after the end; None if there is none."""
    latest = None
    time = next_after(schedule, max(start, end - 31 * DAY))
    while time is not None and time <= end:
        latest, time = time, next_after(schedule, time)
    return latest
