"""Manifests as texts."""

from kopf._testing import manifests


def test_dates_are_texts_as_for_kubectl():
    text = "spec: {day: 2024-01-01, time: 2024-01-01T10:00:00Z, number: 1.5, flag: true}\n"
    [body] = manifests.read(text)
    assert body["spec"] == {"day": "2024-01-01", "time": "2024-01-01T10:00:00Z", "number": 1.5, "flag": True}
