"""Settings changed at run time are sent to the engine once, and only if they are valid."""

import kopf
import pytest
from kopf._intents import serialization
from kopf._runtime.settings_sync import SettingsSync


class Engine:
    def __init__(self):
        self.seen = []

    def configure(self, settings):
        if settings["execution"]["default_backoff"] is None:
            raise ValueError("no back-off")
        self.seen.append(settings["execution"]["default_backoff"])


@pytest.mark.contract("engine 15", "api 6.3")
def test_only_changes_are_sent_to_the_engine(caplog):
    settings, engine = kopf.OperatorSettings(), Engine()
    refresher = SettingsSync(engine, settings)
    refresher.push_if_changed()
    assert engine.seen == []
    settings.execution.default_backoff = 5
    settings.posting.enabled = False
    refresher.push_if_changed()
    refresher.push_if_changed()
    assert engine.seen == [5]
    settings.execution.default_backoff = None
    refresher.push_if_changed()
    assert engine.seen == [5] and "Ignoring an invalid change of settings" in caplog.text


@pytest.mark.contract("api 4")
def test_the_limit_of_threads_is_among_the_settings():
    settings = kopf.OperatorSettings()
    assert serialization.serialize_settings(settings)["execution"]["max_workers"] is None
    settings.execution.max_workers = 3
    assert serialization.serialize_settings(settings)["execution"]["max_workers"] == 3
