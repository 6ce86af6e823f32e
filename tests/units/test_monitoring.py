"""The alerts and the dashboard of `kopf manifests`: their metrics exist, and Prometheus accepts them."""

import json
import pathlib
import re
import subprocess

import pytest
import yaml
from kopf._cli import manifest_objects

from tests.support import programs
from tests.support.metrics import check_labels, documented

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "python/kopf/_cli/monitoring"
ROWS = [
    "Overview",
    "Reaction and handlers",
    "Queue",
    "Streams",
    "Writes and requests",
    "Python",
    "Leadership",
]


@pytest.fixture
def promtool():
    return programs.promtool()


def alerts():
    [group] = yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"]
    return group["rules"]


def panels():
    return json.loads((FOLDER / "dashboard.json").read_text())["panels"]


def test_the_alerts_name_only_metrics_and_labels_that_exist():
    """MET-6; tests/behaviours/metrics compares the documentation with the exposition."""
    metrics = documented()
    for alert in alerts():
        check_labels(alert["expr"], metrics)
        assert alert["annotations"]["summary"] and alert["annotations"]["description"]
        assert alert["labels"]["severity"] in ("critical", "warning")


def test_the_dashboard_names_only_metrics_and_labels_that_exist_and_each_panel_has_advice():
    """MET-6"""
    found, metrics = panels(), documented()
    assert [panel["title"] for panel in found if panel["type"] == "row"] == ROWS
    shown = [panel for panel in found if panel["type"] != "row"]
    for panel in shown:
        assert len(panel["description"]) > 40, panel["title"]
        for target in panel["targets"]:
            check_labels(target["expr"], metrics)
    assert len({panel["id"] for panel in found}) == len(found)
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    assert dashboard["schemaVersion"] >= 39
    variables = [variable["name"] for variable in dashboard["templating"]["list"]]
    assert variables == ["datasource", "job", "namespace", "pod"]


@pytest.mark.parametrize(
    "expression",
    [
        'kopf_unknown{job="x"}',
        'kopf_synced{job="x",handler="y"}',
        'sum by (le) (kopf_synced{job="x"})',
        'kopf_synced{job="x"} and on (handler) kopf_objects{job="x"}',
        'kopf_synced{job="x"} and on (resource) kopf_objects',
    ],
)
def test_an_unknown_metric_or_label_of_an_expression_is_found(expression):
    with pytest.raises(AssertionError):
        check_labels(expression, documented())


@pytest.mark.parametrize(("monitor", "job"), [("service", "mine"), ("podmonitor", "home/mine")])
def test_the_alerts_of_an_operator_are_about_its_job(monitor, job):
    rule = manifest_objects.alert_rules("mine", "home", monitor)
    [group] = rule["spec"]["groups"]
    assert len(group["rules"]) == len(alerts())
    for alert in group["rules"]:
        selectors = re.findall(r'job="(.*?)"', alert["expr"])
        assert selectors and set(selectors) == {job}, alert["alert"]


def test_prometheus_accepts_the_alerts(promtool):
    done = subprocess.run(
        [promtool, "check", "rules", FOLDER / "rules.yaml"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_for_one_series_and_not_for_another_one(promtool):
    """MET-7: the series are in `alerts.test.yaml`."""
    cases = pathlib.Path(__file__).with_name("alerts.test.yaml")
    done = subprocess.run(
        [promtool, "test", "rules", cases], capture_output=True, text=True, timeout=60, cwd=cases.parent
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tested = set(re.findall(r"alertname: (\w+)", cases.read_text()))
    assert tested == {alert["alert"] for alert in alerts()}
