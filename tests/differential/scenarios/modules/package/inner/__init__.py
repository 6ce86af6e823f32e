"""A package in the package."""

from . import helpers as helpers
