"""The log formats to choose from. It does not import `logging`, so that `kopf --help` is fast."""

from __future__ import annotations

import enum


class LogFormat(enum.Enum):
    """The log formats to choose from."""

    PLAIN = "%(message)s"
    FULL = "[%(asctime)s] %(name)-20.20s [%(levelname)-8.8s] %(message)s"
    JSON = "-json-"
