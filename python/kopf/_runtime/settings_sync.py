"""Synchronization of settings that are changed while the operator runs."""

from __future__ import annotations

import logging

from kopf._intents import serialization
from kopf._intents.settings import OperatorSettings, settings_version
from kopf._runtime.bridge import Engine

logger = logging.getLogger("kopf._core.reactor.running")


class SettingsSync:
    """Pushes changed settings to the engine. It is called often, and it is cheap if nothing has changed."""

    def __init__(
        self, engine: Engine, settings: OperatorSettings, iterated: serialization.Iterated | None = None
    ) -> None:
        super().__init__()
        self._engine = engine
        self._settings = settings
        self._iterated: serialization.Iterated = iterated if iterated is not None else {}
        self._version = settings_version()

    def push_if_changed(self) -> None:
        """Push the settings if any was assigned since the last call."""
        version = settings_version()
        if self._version == version:
            return
        self._version = version
        try:
            self._engine.configure(serialization.serialize_settings(self._settings, self._iterated))
        except Exception as e:
            logger.error(f"Ignoring an invalid change of settings; the previous values stay in effect: {e}")
