"""`kopf explain`: why handlers are called or not called, compared with the calls of an operator."""

import datetime
import functools
import json
import pathlib
import re

import kopf
import pytest
import yaml
from kopf.testing import Operator

from tests.support.inspected import LAST, PREFIX, WIDGETS, call

pytestmark = pytest.mark.kopf_embedded_only
FILE = pathlib.Path(__file__).with_name("explained_operator.py")


@pytest.fixture
def cluster(kopf_cluster):
    kopf_cluster.apply(WIDGETS)
    return kopf_cluster


@pytest.fixture
def run(cluster):
    return functools.partial(call, cluster, "explain")


def widget(name, spec=None, **metadata):
    return {
        "apiVersion": "behaviours.example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": spec or {},
    }


def explained(run, name, *options):
    result = run(f"widgets/{name}", str(FILE), "-o", "json", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def verdicts(document):
    return {(item["id"], item["verdict"], item["code"]) for item in document["handlers"]}


def tried(body, id):
    """Whether a handler has had an attempt in the current handling."""
    return '"retries":1' in body["metadata"]["annotations"].get(PREFIX + id, "")


def handle(cluster, *names):
    """Let an operator handle these objects."""
    with Operator(cluster, str(FILE)):
        for name in names:
            cluster.wait_for("widgets", name, lambda body: LAST in body["metadata"].get("annotations", {}))


def test_the_table_of_an_update(cluster, run):
    cluster.create(widget("home", {"domain": "old.example.com"}, labels={"number": "odd", "tier": "silver"}))
    handle(cluster, "home")
    cluster.patch("widgets", "home", {"spec": {"domain": "new.example.com", "publish": "later"}})
    with Operator(cluster, str(FILE)):
        cluster.wait_for(
            "widgets", "home", lambda body: all(tried(body, id) for id in ("publish.spec.domain", "notify"))
        )
    result = run("widget/home", str(FILE), "-n", "default")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert re.fullmatch(r"default/home  widgets\.v1\.behaviours\.example\.com  version \d+", lines[0])
    assert lines[1] == "reason    update: it differs from the last handled state"
    changes = [line.strip() for line in lines[2:4]]
    assert any(
        re.fullmatch(r'spec\.domain: "old\.example\.com" -> "new\.example\.com"   by \S+, \d+\w ago', line)
        for line in changes
    ), changes
    assert lines[4].split() == ["HANDLER", "VERDICT", "WHY"]
    rows = dict(line.split(None, 1) for line in lines[5:])
    assert rows["create_site"] == "no       handles create only"
    assert re.fullmatch(
        r"later    attempt 2 in 1d, after: HTTP 503 from the CDN", rows["publish/spec.domain"]
    )
    assert re.fullmatch(r"done     succeeded \d+\w ago in this handling", rows["notify"])
    assert rows["archive"] == "no       annotation example.com/archive: must be present, is absent"
    assert {line for line in lines if line.startswith("audit ")} == {
        "audit                no       handles create only",
        "audit                no       when: is_audited() is false",
    }
    assert rows["refresh"] == '(timer)      no       label tier: must be "gold", is "silver"'
    assert rows["keepalive"] == "(daemon)   yes"
    assert rows["of_another_kind"] == "no       handles 'gadgets'"
    assert rows["finalizer"] == "kept     keepalive blocks deletion"
    assert max(map(len, lines)) <= 100


def test_the_verdicts_equal_the_calls_of_an_operator(cluster, run, tmp_path, monkeypatch):
    """CLI-2"""
    calls = tmp_path / "calls"
    monkeypatch.setenv("CALLS", str(calls))
    specs = {
        "empty": ({}, {}),
        "audited": ({"audited": True, "domain": "blog.example.com"}, {"labels": {"number": "odd"}}),
        "gold": ({"size": 1}, {"labels": {"tier": "gold", "kept": "yes"}}),
        "archived": ({"domain": "a", "size": 1}, {"annotations": {"example.com/archive": ""}}),
    }
    changes = {
        "empty": {"metadata": {"labels": {"number": "odd"}}},
        "audited": {"spec": {"domain": "shop.example.com"}},
        "gold": {"spec": {"size": 2}},
        "archived": {"spec": {"size": 3, "domain": None}},
    }
    for name, (spec, metadata) in specs.items():
        cluster.create(widget(name, spec, **metadata))
        for step in ("create", "resume", "update", "delete"):
            if step == "update":
                cluster.patch("widgets", name, changes[name])
            if step == "delete":
                cluster.delete("widgets", name)
                if cluster.find("widgets", name) is None:
                    continue  # it had no finalizer
            document = explained(run, name, "--event", "listed")
            assert document["reason"] == step, (name, document)
            expected = {
                id
                for id, verdict, code in verdicts(document)
                if verdict == "yes" or (verdict == "later" and code in ("lifecycle", "finalizer"))
            }
            calls.write_text("")
            with Operator(cluster, str(FILE)) as operator:
                operator.wait_until_idle()
            assert set(calls.read_text().split()) == expected, (name, step, document)
        assert cluster.find("widgets", name) is None


def test_events_changes_and_functions_can_be_chosen(cluster, run, tmp_path):
    cluster.create(widget("home", {"size": 1}, labels={"number": "odd", "other": ""}))
    handle(cluster, "home")
    document = explained(run, "home")
    assert document["version"] == 1 and document["reason"] == "noop" and document["event"] == "modified"
    assert document["object"]["name"] == "home" and document["object"]["kind"] == "Widget"
    assert ("resume", "no", "initial") in verdicts(document)
    assert ("log_event", "yes", None) in verdicts(document)
    assert ("of_another_kind", "no", "selector") in verdicts(document)
    assert ("resume", "yes", None) in verdicts(explained(run, "home", "--event", "listed"))
    deleted = verdicts(explained(run, "home", "--event", "deleted"))
    assert {("log_event", "yes", None), ("keepalive", "no", "deleted")} <= deleted

    file = tmp_path / "change.yaml"
    file.write_text("spec: {size: 2, audited: true}\nmetadata: {labels: {number: null}}")
    changed = explained(run, "home", "--with", str(file))
    assert changed["reason"] == "update"
    fields = {tuple(item["field"]): (item["old"], item["new"]) for item in changed["changed"]}
    assert fields["spec", "size"] == (1, 2) and fields["metadata", "labels", "number"] == ("odd", None)
    codes = {id: (verdict, code) for id, verdict, code in verdicts(changed)}
    assert codes["notify"] == codes["grow/spec.size"] == ("later", "finalizer")
    assert codes["log_event"] == ("no", "label") and codes["keepalive"] == ("no", "label")
    assert changed["finalizer"] == {"verdict": "removed", "handlers": []}
    file.write_text("spec: {size: 2}")
    codes = {
        id: (verdict, code) for id, verdict, code in verdicts(explained(run, "home", "--with", str(file)))
    }
    assert codes["notify"] == ("yes", None) and codes["grow/spec.size"] == ("later", "lifecycle")

    unasked = explained(run, "home", "--no-callables")
    assert {("log_event", "ask", None), ("keepalive", "ask", None)} <= verdicts(unasked)


def test_an_error_in_a_filter_is_reported(cluster, run, tmp_path):
    cluster.create(widget("home"))
    file = tmp_path / "broken.py"
    file.write_text(
        "import kopf\n"
        "@kopf.on.create('widgets', when=lambda spec, **_: spec['x'])\n"
        "def broken(**_): pass\n"
        "@kopf.on.create('widgets')\n"
        "def other(**_): pass\n"
        "@kopf.on.validate('widgets')\n"
        "def admission(**_): pass\n"
    )
    result = run("widgets/home", str(file))
    assert result.exit_code == 0, result.output
    last = result.stdout.splitlines()[-1]
    assert last.endswith("a filter of broken raises KeyError: 'x'")
    assert "yes" not in result.stdout.split() and "admission" not in result.stdout


def test_mistakes_are_explained(cluster, run, tmp_path):
    cluster.create(widget("home"))
    for args, code, text in [
        (("widgets", str(FILE)), 2, "is not an object: specify KIND/NAME"),
        (("widgets/home",), 2, "Name the files with the handlers"),
        (("widgets/home", str(FILE), "--event", "x"), 2, "is not one of"),
        (("widgets/hom", str(FILE)), 1, "There is no widgets 'hom' in the namespace 'default'. Use -n"),
        (("wigdets/home", str(FILE)), 1, "The cluster has no resource 'wigdets'"),
        (("nodes/home", str(FILE), "-n", "x"), 2, "nodes are cluster-scoped"),
    ]:
        result = run(*args)
        assert result.exit_code == code and text in result.output, (args, result.output)
    broken = tmp_path / "broken.yaml"
    broken.write_text("- 1")
    result = run("widgets/home", str(FILE), "--with", str(broken))
    assert result.exit_code == 2 and "must have one object" in result.output


def test_nothing_is_written(cluster, run):
    cluster.create(widget("home", {"domain": "x"}))
    before = cluster.get("widgets", "home")
    explained(run, "home")
    assert cluster.get("widgets", "home") == before


def test_storages_lifecycles_and_reconcilers_of_authors_are_used(cluster, run, tmp_path):
    file = tmp_path / "custom.py"
    file.write_text(
        "import kopf\n"
        "class Storage(kopf.AnnotationsProgressStorage):\n"
        "    pass\n"
        "@kopf.on.startup()\n"
        "def configure(settings, **_):\n"
        "    settings.persistence.progress_storage = Storage(prefix='storage.example.com')\n"
        "@kopf.on.create('widgets')\n"
        "def first(**_): pass\n"
        "@kopf.on.create('widgets')\n"
        "def second(**_): pass\n"
        "@kopf.on.create('widgets')\n"
        "def third(**_): pass\n"
        "@kopf.on.reconcile('widgets', when=lambda spec, **_: spec.get('reconciled'))\n"
        "def sync(**_): pass\n"
        "kopf.set_default_lifecycle(lambda handlers, **_: handlers[-1:])\n"
    )
    record = {"started": "2026-01-01T00:00:00Z", "purpose": "create", "retries": 1, "success": True}
    annotations = {"storage.example.com/first": json.dumps(record)}
    cluster.create(widget("home", {"reconciled": True}, annotations=annotations))
    try:
        result = run("widgets/home", str(file), "-o", "json")
        assert result.exit_code == 0, result.output
        assert verdicts(json.loads(result.stdout)) == {
            ("first", "done", "done"),
            ("second", "later", "lifecycle"),
            ("third", "yes", None),
            ("sync", "yes", None),
        }
        cluster.patch("widgets", "home", {"spec": {"reconciled": None}})
        table = run("widgets/home", str(file)).stdout
        assert "sync (reconciler)  no       when: <lambda>() (custom.py:13) is false" in table
    finally:
        kopf.set_default_lifecycle(None)


SUBHANDLERS = """
import kopf

@kopf.on.create("widgets")
def build(**_):
    @kopf.subhandler(id="first")
    def first(**_):
        pass

    @kopf.subhandler(id="second")
    def second(**_):
        raise kopf.TemporaryError("no disk", delay=100_000)

    @kopf.subhandler(id="third")
    def third(**_):
        raise kopf.PermanentError("no licence")
"""


def test_subhandlers_of_earlier_calls_have_rows(cluster, run, tmp_path):
    path = tmp_path / "operator_file.py"
    path.write_text(SUBHANDLERS)
    with Operator(cluster, str(path)):
        cluster.create(widget("parts"))
        last = PREFIX + "build.third"
        cluster.wait_for(
            "widgets",
            "parts",
            lambda body: "licence" in body["metadata"].get("annotations", {}).get(last, ""),
        )
    document = json.loads(run("widgets/parts", str(path), "-o", "json").stdout)
    assert [(it["id"], it["verdict"], it["code"], it["parent"]) for it in document["handlers"]] == [
        ("build", "later", "delay", None),
        ("build/first", "done", "done", "build"),
        ("build/second", "later", "delay", "build"),
        ("build/third", "done", "failed", "build"),
    ]
    text = run("widgets/parts", str(path)).stdout
    assert re.search(r"^build/second +later +attempt 2 in 1d\S*, after: no disk$", text, re.M), text
    assert re.search(r"^build/third +done +failed \S+ ago: no licence$", text, re.M), text


def test_the_namespace_is_that_of_the_context(cluster, run, tmp_path):
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
    cluster.create(widget("home", namespace="elsewhere"))
    config = json.loads(json.dumps(yaml.safe_load(cluster.kubeconfig.read_text())))
    config["contexts"][0]["context"]["namespace"] = "elsewhere"
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    result = run("widgets/home", str(FILE), environment={"KUBECONFIG": str(path)})
    assert result.exit_code == 0 and result.stdout.startswith("elsewhere/home "), result.output


LEADING = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.leadership.enabled = True
    settings.leadership.name = "shared"
    settings.leadership.namespace = "default"

@kopf.on.create("widgets")
def create(**_): ...

@kopf.on.update("widgets")
def update(**_): ...

@kopf.index("widgets")
def by_name(name, **_): ...
"""


def test_without_a_leader_only_indices_are_called(cluster, run, tmp_path):
    path = tmp_path / "operator_file.py"
    path.write_text(LEADING)
    cluster.create(widget("led"))

    def found():
        document = json.loads(run("widgets/led", str(path), "-o", "json").stdout)
        return {item["id"]: (item["verdict"], item["code"], item["why"]) for item in document["handlers"]}

    assert found() == {
        "create": ("later", "fence", "no replica leads: lease default/shared has no holder"),
        "update": ("no", "reason", "handles update only"),
        "by_name": ("yes", None, ""),
    }
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease = {"holderIdentity": "someone", "leaseDurationSeconds": 15, "renewTime": now}
    metadata = {"name": "shared", "namespace": "default"}
    cluster.create(
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": lease}
    )
    assert found()["create"] == ("yes", None, "")
    old = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    cluster.patch("leases", "shared", old)
    assert found()["create"][1] == "fence" and " is held by someone, renewed " in found()["create"][2]


def test_options_can_name_the_lease(cluster, run, tmp_path):
    path = tmp_path / "operator_file.py"
    path.write_text("import kopf\n@kopf.on.create('widgets')\ndef create(**_): ...\n")
    cluster.create(widget("led"))
    options = ("--lease=shared", "--lease-namespace=default")
    for given, code in ((), None), (options, "fence"):
        document = json.loads(run("widgets/led", str(path), "-o", "json", *given).stdout)
        assert [item["code"] for item in document["handlers"]] == [code]
