"""The type of loggers. It owns nothing else: how things are logged is known to `_runtime.logs`."""

from __future__ import annotations

import logging
from typing import Any

Logger = logging.Logger | logging.LoggerAdapter[Any]
"""A logger as handlers get it."""
