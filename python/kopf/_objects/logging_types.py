"""Types of logging."""

from __future__ import annotations

import logging
from typing import Any

Logger = logging.Logger | logging.LoggerAdapter[Any]
"""A logger as handlers get it."""
