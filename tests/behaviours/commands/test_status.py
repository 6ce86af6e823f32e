"""`kopf status`: the states of objects, as an operator and Kopf 1.45 have stored them."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys

import click.testing
import pytest
from kopf._cli import status
from kopf.testing import Cluster, Operator

from tests.support.inspected import FINALIZER, LAST, OTHER, PEERING, PREFIX, WIDGETS, call

pytestmark = pytest.mark.kopf_embedded_only
FILE = pathlib.Path(__file__).with_name("watched_operator.py")
ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def cluster(kopf_cluster):
    kopf_cluster.apply(WIDGETS)
    return kopf_cluster


@pytest.fixture
def run(cluster):
    return functools.partial(call, cluster, "status")


def widget(name: str, spec: object = None, served: bool = True, **metadata: object) -> dict[str, object]:
    labels = {"served": "yes"} if served else {}
    return {
        "apiVersion": "behaviours.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "labels": labels, **metadata},
        "spec": spec or {},
    }


def record(body: dict, handler: str) -> dict:
    return json.loads(body["metadata"].get("annotations", {}).get(PREFIX + handler, "{}"))


def states(result: click.testing.Result) -> dict[str, str]:
    assert result.exit_code == 0, result.output
    return {item["name"]: item["state"] for item in json.loads(result.stdout)["objects"]}


EXPECTED = {
    "handled": "handled",
    "retrying": "retrying",
    "overdue": "overdue",
    "failed": "failed",
    "handling": "handling",
    "deleting": "deleting",
    "stuck": "stuck",
    "changed": "changed",
    "malformed": "malformed",
    "new": "new",
    "foreign": "foreign",
}


def make_all_states(cluster: Cluster) -> None:
    """An object in each state, of the same name, by an operator that has stopped five minutes ago."""
    specs = {
        "handled": {},
        "retrying": {"publish": "later"},
        "overdue": {"publish": "soon"},
        "failed": {"prepare": "wait", "publish": "never"},
        "handling": {"publish": "hang"},
        "deleting": {"archive": "wait"},
        "stuck": {},
        "changed": {},
        "malformed": {},
    }
    with Operator(cluster, str(FILE)):
        for name, spec in specs.items():
            cluster.create(widget(name, spec))
        cluster.create(widget("foreign", served=False))
        for name in ("handled", "deleting", "stuck", "changed", "malformed"):
            cluster.wait_for("widgets", name, lambda body: LAST in body["metadata"].get("annotations", {}))
        for name in ("retrying", "overdue"):
            cluster.wait_for("widgets", name, lambda body: record(body, "publish").get("retries") == 1)
        cluster.wait_for(
            "widgets",
            "failed",
            lambda body: record(body, "publish").get("failure") and record(body, "prepare").get("delayed"),
        )
        cluster.wait_for("widgets", "handling", lambda body: record(body, "prepare").get("success"))
        cluster.delete("widgets", "deleting")
        cluster.wait_for("widgets", "deleting", lambda body: record(body, "archive").get("retries") == 1)
    cluster.delete("widgets", "stuck")
    cluster.create(widget("new"))
    cluster.patch("widgets", "changed", {"spec": {"size": 2}})
    cluster.patch("widgets", "malformed", {"metadata": {"annotations": {PREFIX + "publish": "{"}}})
    cluster.advance(400)


def test_characters_that_the_terminal_does_not_have_are_replaced(cluster, run):
    cluster.create(widget("one" * 30))
    result = run("-k", "widgets", charset="ascii")
    assert result.exit_code == 0, result.output
    assert re.search(r"(one)+o?n?\?", result.stdout)


def test_each_state_of_a_real_operator_is_shown(cluster, run):
    """CLI-1"""
    make_all_states(cluster)
    assert set(EXPECTED.values()) == set(status.STATES)
    with_handlers = run(str(FILE), "-A", "-o", "json")
    assert states(with_handlers) == EXPECTED
    # Without the handlers, an object without any traces is none of this operator.
    assert states(run("-k", "widgets", "-o", "json")) == {**EXPECTED, "new": "foreign"}
    found = {item["name"]: item for item in json.loads(with_handlers.stdout)["objects"]}
    assert found["failed"]["handler"] == "publish" and found["failed"]["message"] == "Not a domain: 'shop_'"
    assert (found["failed"]["done"], found["failed"]["total"], found["failed"]["reason"]) == (1, 2, "create")
    assert (found["retrying"]["attempts"], found["retrying"]["message"]) == (1, "HTTP 503 from the CDN")
    assert found["malformed"]["message"].startswith(f"malformed annotation {PREFIX}publish: ")
    assert found["stuck"]["finalizers"] == [FINALIZER]
    table = run(str(FILE), "-n", "default")
    assert table.exit_code == 0 and max(map(len, table.stdout.splitlines())) <= 100
    lines = {line.split()[1]: " ".join(line.split()) for line in table.stdout.splitlines()[1:12]}
    assert re.fullmatch(
        r"default retrying retrying create 1/2 publish 1 1d \dm HTTP 503 from the CDN", lines["retrying"]
    )
    assert re.fullmatch(r"default stuck stuck delete - - - 6m finalizer present; no writes…", lines["stuck"])
    assert re.fullmatch(r"default handled handled - - - - 6m", lines["handled"])
    assert " ".join(line.strip() for line in table.stdout.splitlines()[12:]) == (
        "11 widgets: 1 malformed, 1 stuck, 1 deleting, 1 failed, 1 overdue, 1 retrying, 1 handling, "
        "1 changed, 1 new, 1 handled, 1 foreign"
    )


def test_problems_formats_and_exit_codes(cluster, run):
    make_all_states(cluster)
    problems = run(str(FILE), "--problems", "-o", "name")
    assert problems.exit_code == 0
    names = {line.rpartition("/")[2] for line in problems.stdout.splitlines()}
    assert names == {"malformed", "stuck", "failed", "overdue", "retrying"}
    assert problems.stdout.startswith("widgets.behaviours.example.com/")
    for option, code in [("stuck,failed", 3), ("stuck", 3)]:
        assert run(str(FILE), "--fail-on", option).exit_code == code
    cluster.delete("widgets", "failed")  # its finalizer stays: no operator is running
    assert run(str(FILE), "--fail-on", "failed").exit_code == 0
    wide = run(str(FILE), "-o", "wide").stdout
    assert "FINALIZERS" in wide and "finalizer present; no writes for 6 min" in wide
    for args in [(), ("-k", "widgets", "--fail-on", "stcuk"), ("-k", "widgets", "-A", "-n", "x")]:
        assert run(*args).exit_code == 2, args
    assert "did you mean 'stuck'" in run("-k", "widgets", "--fail-on", "stcuk").output
    assert run("-k", "widgets", "--watch", "--fail-on", "stuck").exit_code == 2
    unknown = run("-k", "wigdets")
    assert unknown.exit_code == 1 and "The cluster has no resource 'wigdets'" in unknown.output
    for name in ("widget", "Widget", "widgets.behaviours.example.com", "widgets.v1.behaviours.example.com"):
        assert "malformed" in run("-k", name).stdout
    assert run("-k", "wd", "-n", "nowhere").stdout == "no widgets\n"


# As Kopf 1.45 writes them: all keys in both schemes, and no time zones in old versions.
OF_KOPF = {
    "handled": {LAST: '{"spec":{"size":1}}\n'},
    "changed": {LAST: '{"spec":{"size":2}}\n'},
    "retrying": {
        PREFIX + "publish": '{"started":"2026-01-01T00:00:00.000000","delayed":"2996-01-01T00:00:00.000000",'
        '"purpose":"create","retries":7,"success":false,"failure":false,"message":"HTTP 503"}',
    },
    "failed": {
        PREFIX
        + "publish": '{"started":"2026-01-01T00:00:00.000000+00:00","stopped":"2026-01-01T00:00:01+00:00",'
        '"purpose":"update","retries":3,"success":false,"failure":true,"message":"Not a domain"}',
        PREFIX + "prepare": '{"started":"2026-01-01T00:00:00.000000+00:00","purpose":"update","retries":0,'
        '"success":false,"failure":false}',
        LAST: '{"spec":{"size":2}}\n',
    },
}
LONG_IDS = {
    f"{PREFIX}some.very.long.handler.id.that.exceeds.sixty.three.chara-Ft7QHA": OF_KOPF["retrying"][
        PREFIX + "publish"
    ],
    f"{PREFIX}some.very.long.handler.id.that.exceeds.-C8rtqw": OF_KOPF["retrying"][PREFIX + "publish"],
}


def test_states_that_kopf_1_45_has_stored_are_shown(cluster, run):
    """CLI-1"""
    for name, annotations in OF_KOPF.items():
        cluster.create(widget(name, {"size": 1}, served=False, annotations=annotations))
    cluster.create(widget("long", {"size": 1}, served=False, annotations=LONG_IDS))
    cluster.create(widget("new", {"size": 1}, served=False, finalizers=[FINALIZER]))
    result = run("-k", "widgets", "-o", "json")
    assert states(result) == {**{name: name for name in OF_KOPF}, "long": "retrying", "new": "new"}
    found = {item["name"]: item for item in json.loads(result.stdout)["objects"]}
    assert (found["long"]["total"], found["long"]["attempts"]) == (1, 7)
    assert (found["failed"]["done"], found["failed"]["total"]) == (1, 2)
    assert found["retrying"]["next"] == "2996-01-01T00:00:00.000000+00:00"


def fields_of_the_page() -> set[str]:
    """The fields that the page documents for `kopf status -o json`."""
    page = (ROOT / "docs/commands.md").read_text()
    section = re.split(r"\n##", page.partition("### The document of kopf status\n")[2])[0]
    return {
        name for cell in re.findall(r"^\| (`.*?) \|", section, re.M) for name in re.findall(r"`(.+?)`", cell)
    }


def paths_of(value: object, path: str = "") -> set[str]:
    if isinstance(value, list):
        return set().union(*(paths_of(item, f"{path}[]") for item in value)) if value else set()
    if isinstance(value, dict) and path != "counts[].states":
        nested = {f"{path}.{key}".removeprefix("."): inner for key, inner in value.items()}
        return set(nested).union(*(paths_of(inner, key) for key, inner in nested.items()))
    return set()


def test_the_json_has_the_documented_fields(cluster, run):
    """CLI-1"""
    cluster.apply(PEERING.format(age=cluster.now.isoformat()))
    cluster.create(widget("failed", served=False, annotations=OF_KOPF["failed"]))
    found = json.loads(run("-k", "widgets", "-o", "json").stdout)
    assert found["version"] == 1
    assert paths_of(found) == fields_of_the_page()


def test_live_operators_of_the_peering_are_shown(cluster, run):
    cluster.apply(PEERING.format(age=cluster.now.isoformat()))
    printed = run("-k", "widgets").stdout.splitlines()
    assert printed[0] == "no widgets"
    assert re.fullmatch(r"peering default: the-operator, priority 7, renewed \ds ago", printed[1])
    assert len(printed) == 2


CUSTOM = """
import kopf

class Storage(kopf.AnnotationsProgressStorage):
    pass

@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.progress_storage = Storage(prefix="my.org")
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="my.org")
    settings.persistence.finalizer = "my.org/mine"

@kopf.on.create("widgets")
@kopf.on.update("widgets")
def publish(**_):
    raise AssertionError("No handler is called.")
"""


def test_custom_storages_and_the_operators_finalizer_are_used(cluster, run, tmp_path):
    (tmp_path / "custom.py").write_text(CUSTOM)
    text = OF_KOPF["retrying"][PREFIX + "publish"]
    cluster.create(widget("retrying", served=False, annotations={"my.org/publish": text}))
    cluster.create(
        widget("new", served=False, annotations={PREFIX + "publish": text}, finalizers=["my.org/mine"])
    )
    cluster.create(
        widget(
            "handled",
            {"size": 1},
            served=False,
            annotations={"my.org/last-handled-configuration": '{"spec":{"size":1}}'},
        )
    )
    result = run(str(tmp_path / "custom.py"), "-o", "json")
    assert states(result) == {"retrying": "retrying", "new": "new", "handled": "handled"}
    assert {item["name"]: item["finalizers"] for item in json.loads(result.stdout)["objects"]}["new"] == [
        "my.org/mine"
    ]


def test_the_command_only_reads(cluster, run):
    cluster.create(widget("handled", served=False, annotations=OF_KOPF["handled"]))
    cluster.clear_requests()
    assert run("-k", "widgets").exit_code == 0 and run(str(FILE)).exit_code == 0
    methods = {request.method for request in cluster.requests}
    assert methods == {"GET"}


def test_objects_are_printed_again_when_they_change(cluster, tmp_path):
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, "-m", "kopf", "status", "-k", "widgets", "--watch", "-o", "json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["objects"] == []
        cluster.create(widget("one", served=False))
        assert json.loads(process.stdout.readline())["objects"][0]["state"] == "foreign"
        cluster.patch("widgets", "one", {"metadata": {"finalizers": [FINALIZER]}})
        assert json.loads(process.stdout.readline())["objects"][0]["state"] == "new"
        process.send_signal(2)
        assert process.wait(30) == 0


def test_failed_requests_do_not_end_the_watch(cluster):
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, "-m", "kopf", "status", "-k", "widgets", "--watch", "-o", "json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["objects"] == []
        cluster.inject("code", 503, verb="list", resource="widgets", times=2)
        assert process.stderr.readline().startswith("Warning: The cluster cannot be read, the next attempts")
        assert process.stderr.readline() == "The cluster can be read again.\n"
        cluster.create(widget("one", served=False))
        assert json.loads(process.stdout.readline())["objects"][0]["state"] == "foreign"
        cluster.delete("customresourcedefinitions", "widgets.behaviours.example.com")
        assert process.wait(30) == 1
        assert "Error: The cluster cannot be read: " in process.stderr.read()


# The peak of the memory in KiB, since the start of this program, and the CPU time.
MEASURED = """
import atexit, pathlib, re, sys, time
from kopf.cli import main

def report():
    peak = re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]
    print(peak, time.process_time(), file=sys.stderr)

atexit.register(report)
main(prog_name="kopf")
"""


def test_many_objects_are_read_in_pages_within_the_limits(cluster):
    """CLI-1. The CPU time does not grow faster than the number of objects."""
    annotations = {**OF_KOPF["failed"], OTHER: "x" * 200}
    path = "/apis/behaviours.example.com/v1/namespaces/default/widgets"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, "-c", MEASURED, "status", "-k", "widgets", "--fail-on", "failed"]

    def measure(begin, end):
        bodies = (
            widget(f"w{n:05}", {"size": n}, served=False, annotations=annotations) for n in range(begin, end)
        )
        cluster.call_all([("POST", path, body) for body in bodies])
        cluster.clear_requests()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 3, done.stderr
        assert done.stdout.splitlines()[-1] == f"{end} widgets: {end} failed"
        peak, seconds = done.stderr.splitlines()[-1].split()
        return int(peak) * 1024, float(seconds)

    _, seconds_of_few = measure(0, 2_500)
    peak, seconds = measure(2_500, 10_000)
    lists = [it for it in cluster.requests if it.path == "/apis/behaviours.example.com/v1/widgets"]
    assert len(lists) == 20
    assert peak < 90_000_000
    # Four times as many objects. A machine that is busier now than before can double the CPU time.
    assert seconds < 8 * seconds_of_few, (seconds, seconds_of_few)
