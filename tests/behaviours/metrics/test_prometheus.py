"""All metrics, in the documentation and in Prometheus. MET-6."""

import collections
import contextlib
import json
import math
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml

from tests.behaviours.metrics.monitored_operator import (
    Load,
    MonitoredOperator,
    add_unlisted_resource,
    free_address,
)
from tests.support.metrics import documented, labels_of, parse, selectors
from tests.support.programs import prometheus

pytestmark = [
    pytest.mark.kopf_embedded_only,
    pytest.mark.skipif(sys.platform != "linux", reason="the metrics of the process need /proc"),
]

# On purpose: handlers fail.
HANDLERS_RAISE = True
MONITORING = pathlib.Path(__file__).parents[3] / "python/kopf/_cli/monitoring"
SECONDS = float(os.environ.get("MONITORING_SECONDS", "0"))
LABELS = {"namespace": "default", "pod": "operator-0"}
VARIABLES = {"$job": "operator", "$namespace": "default", "$pod": "operator-.*", "$__rate_interval": "1m"}


@pytest.fixture
def operator(cluster, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    add_unlisted_resource(cluster)
    with MonitoredOperator(free_address(), free_address()) as running:
        running.wait_until_leading()
        yield running


def test_every_metric_and_label_of_an_operator_with_everything_is_documented(cluster, operator):
    """MET-6: the other tests compare the expressions with the documentation."""
    Load(cluster, operator).do_a_round()
    docs = documented()

    def missing(text: str) -> set[str]:
        # The limit of open files may be infinite.
        return docs.keys() - labels_of(parse(text)).keys() - {"process_max_fds"}

    operator.wait_until(lambda text: not missing(text))
    found = labels_of(parse(operator.metrics()))
    assert found == {name: labels for name, labels in docs.items() if name in found}


class Prometheus:
    """A Prometheus server that scrapes one target."""

    def __init__(self, folder: pathlib.Path, target: str) -> None:
        address = free_address()
        self.url, self.log = f"http://{address}", (folder / "prometheus.log").open("wb")
        scrape = {
            "job_name": "operator",
            "scrape_interval": "1s",
            "static_configs": [{"targets": [target], "labels": LABELS}],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
        options = {"config.file": folder / "prometheus.yaml", "storage.tsdb.path": folder / "data"}
        options |= {"web.listen-address": address}
        command = [prometheus(), *(f"--{name}={value}" for name, value in options.items())]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self.log.close()

    def query(self, expression: str) -> list[float]:
        """The values of the expression now."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=60) as response:
            result = json.load(response)
        return [float(sample["value"][1]) for sample in result["data"]["result"]]

    def wait_until_scraping(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(urllib.error.URLError):
                if self.query("up == 1"):
                    return
            threading.Event().wait(0.1)
        pytest.fail("Prometheus does not scrape the operator.")


def shown() -> dict[str, list[str]]:
    """The expressions of each panel, for this target."""
    found = collections.defaultdict(list)
    for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            assert "$" not in expression, expression
            found[panel["title"]].append(expression)
    return found


def alerting() -> dict[str, str]:
    [group] = yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"]
    return {alert["alert"]: alert["expr"] for alert in group["rules"]}


@pytest.mark.timeout(900)
@pytest.mark.skipif(not SECONDS, reason="`make monitoring` runs it")
def test_every_expression_has_samples_of_an_operator_under_a_mixed_load(cluster, operator, tmp_path):
    """MET-6: each expression of the dashboard has a value, and each selector of the alerts a series."""
    load = Load(cluster, operator)
    server = Prometheus(tmp_path, operator.status.removeprefix("http://"))
    try:
        server.wait_until_scraping()
        load.break_watches()
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            load.do_a_round()
            threading.Event().wait(1)
        panels = [(title, expression) for title, expressions in shown().items() for expression in expressions]
        assert len(panels) > 50
        without_value = [one for one in panels if all(math.isnan(value) for value in server.query(one[1]))]
        assert without_value == []
        alerts = [(name, selector) for name, text in alerting().items() for selector, *_ in selectors(text)]
        assert len(alerts) > 15
        assert [one for one in alerts if not server.query(one[1])] == []
    finally:
        server.stop()
