"""Tools for the tests of operators. It owns their public names."""

from kopf._kits.runner import KopfRunner

__all__ = ["KopfRunner"]
