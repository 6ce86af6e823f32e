"""The formats of logs as they are chosen. It owns these words only: the command line needs them early."""

from __future__ import annotations

import enum


class LogFormat(enum.Enum):
    """The formats of logs to choose from."""

    PLAIN = "%(message)s"
    FULL = "[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s"
    JSON = "-json-"
