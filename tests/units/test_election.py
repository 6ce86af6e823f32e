"""The settings of leader election: rejected ones, and those of an operator with `--dev`."""

import kopf
import pytest
from kopf._runtime import optional_parts
from kopf._runtime.election import ElectionUsageError


def serialized(**leadership):
    """The settings of the engine, with these of leadership, and those of peering after `peering_`."""
    settings = kopf.OperatorSettings()
    for name, value in leadership.items():
        group, _, rest = name.partition("_")
        if group == "peering":
            setattr(settings.peering, rest, value)
        else:
            setattr(settings.leadership, name, value)
    return optional_parts.serialize_startup(settings, {}, works=True)


def test_an_election_needs_the_name_of_a_lease():
    text = r"Leader election needs a lease name .*: --lease=NAME\."
    with pytest.raises(ElectionUsageError, match=text) as e:
        serialized(enabled=True)
    assert e.value.exit_code == 2


def test_what_follows_a_loss_is_one_of_two():
    assert serialized(enabled=True, name="x")["leadership"]["on_lost"] == "standby"
    with pytest.raises(ElectionUsageError, match="on_lost must be 'standby' or 'exit', not 'stop'"):
        serialized(enabled=True, name="x", on_lost="stop")


def test_a_dev_operator_needs_a_peering_in_place_of_the_election():
    """A part of LEA-14."""
    for enabled in (True, False):
        settings = serialized(enabled=enabled, name="x", peering_priority=666)
        assert "leadership" not in settings
        assert settings["peering"]["required"] is True
    assert "leadership" in serialized(enabled=True, name="x", peering_priority=666, dev=True)
    assert "required" not in serialized(enabled=True, name="x", peering_priority=5)["peering"]
    assert "required" not in serialized(peering_priority=666)["peering"]
    with pytest.raises(ElectionUsageError, match="omit --standalone, or set --leader-elect"):
        serialized(enabled=True, name="x", peering_priority=666, peering_standalone=True)
