"""Types of logging: the loggers of handlers, and the log formats to choose from."""

from __future__ import annotations

import enum
import logging
from typing import Any

Logger = logging.Logger | logging.LoggerAdapter[Any]
"""A logger as handlers get it."""


class LogFormat(enum.Enum):
    """The log formats to choose from."""

    PLAIN = "%(message)s"
    FULL = "[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s"
    JSON = "-json-"
