"""A module that is imported by a relative import."""

ANSWER = 42
