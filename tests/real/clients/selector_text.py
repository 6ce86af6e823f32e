"""Selectors as the text that most clients send."""

OPERATORS = {
    "=": "{key}={values}",
    "!=": "{key}!={values}",
    "in": "{key} in ({values})",
    "notin": "{key} notin ({values})",
    "exists": "{key}",
    "absent": "!{key}",
}


def text_of(selector: list[tuple[str, str, tuple[str, ...]]]) -> str | None:
    """The selector as a text, or nothing without requirements."""
    parts = [
        OPERATORS[operator].format(key=key, values=",".join(values)) for key, operator, values in selector
    ]
    return ",".join(parts) or None
