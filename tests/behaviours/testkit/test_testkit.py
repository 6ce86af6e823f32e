"""The testing kit itself: clusters, operators, and the runner of the command line."""

import asyncio
import concurrent.futures
import gc
import inspect
import pathlib
import sys
import threading
import warnings

import kopf
import pytest
import yaml
from kopf._testing import snapshot
from kopf.testing import ApiError, Cluster, KopfRunner, Operator

FILE = pathlib.Path(__file__).with_name("handlers.py")
POD = """
apiVersion: v1
kind: ConfigMap
metadata: {name: one, labels: {kind: first}}
data: {a: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: two}
"""


@pytest.mark.contract("api 13")
def test_the_runner_of_the_command_line_runs_in_the_cluster(cluster, make):
    args = ["run", "-n", cluster.namespace, str(FILE)]
    with KopfRunner(args, cluster=cluster, timeout=60, registry=kopf.OperatorRegistry()) as runner:
        make()
        cluster.wait_for("widgets", "one", {"status": {"greet": {"greeting": "Hello, one!"}}})
    assert runner.exit_code == 0
    assert "Handler 'greet' succeeded." in runner.output


@pytest.mark.parametrize("form", ["sync", "async"])
def test_an_exit_in_a_handler_stops_the_operator_properly(cluster, make, form):
    registry, cleaned = kopf.OperatorRegistry(), []

    def leave(**_):
        sys.exit(3)

    async def leave_loop(**_):
        sys.exit(3)

    kopf.on.create("widgets", registry=registry)(leave if form == "sync" else leave_loop)
    kopf.on.cleanup(registry=registry)(lambda **_: cleaned.append(True))
    args = ["run", "-n", cluster.namespace, "--standalone"]
    with KopfRunner(args, cluster=cluster, timeout=60, registry=registry, reraise=False) as runner:
        make()
        assert runner.future.result(60).exit_code == 3
    assert cleaned


@pytest.mark.parametrize("form", ["sync", "async"])
def test_a_failure_of_the_test_in_a_handler_fails_the_test(cluster, make, handled, form):
    registry = kopf.OperatorRegistry()

    def judge(name, **_):
        pytest.fail(f"{name} must not be handled.")

    async def judge_in_loop(**kwargs):
        judge(**kwargs)

    declare = kopf.on.create("widgets", registry=registry, errors=kopf.ErrorsMode.PERMANENT)
    declare(judge if form == "sync" else judge_in_loop)
    args = ["run", "-n", cluster.namespace, "--standalone"]
    with (
        pytest.raises(pytest.fail.Exception, match="one must not be handled"),
        KopfRunner(args, cluster=cluster, timeout=60, registry=registry) as runner,
    ):
        make()
        handled()
    assert runner.exit_code == 0


def test_handlers_can_be_declared_in_the_test(cluster, make, kopf_operator):
    before = kopf.get_default_registry()

    def handlers():
        @kopf.on.create("widgets", id="size_up")
        def size_up(spec, **_):
            return spec["size"] + 1

    kopf_operator(handlers)
    make(spec={"size": 41})
    cluster.wait_for("widgets", "one", {"status": {"size_up": 42}})
    assert kopf.get_default_registry() is before


def test_nothing_stays_in_the_import_path(cluster):
    before = list(sys.path)
    with Operator(cluster, FILE):
        assert sys.path[0] == str(FILE.parent)
    assert sys.path == before


def test_yaml_is_applied_and_applied_again(kopf_cluster):
    made = kopf_cluster.apply(POD)
    assert [body["metadata"]["name"] for body in made] == ["one", "two"]
    again = kopf_cluster.apply(POD.replace("a: b", "c: d"))
    assert again[0]["data"] == {"a": "b", "c": "d"}
    assert {it["metadata"]["name"] for it in kopf_cluster.list("cm")} >= {"one", "two"}
    assert [it["metadata"]["name"] for it in kopf_cluster.list("configmaps", labels="kind=first")] == ["one"]
    kopf_cluster.delete("cm", "two")
    kopf_cluster.wait_until_gone("cm", "two")
    assert kopf_cluster.find("ConfigMap", "two") is None


def test_errors_state_the_reason(kopf_cluster):
    with pytest.raises(ApiError, match="NotFound") as error:
        kopf_cluster.get("configmaps", "nope")
    assert error.value.code == 404
    with pytest.raises(LookupError, match="Is its CRD"):
        kopf_cluster.get("unheardofs", "nope")


def test_timeouts_report_the_last_state(kopf_cluster):
    kopf_cluster.apply(POD)
    with pytest.raises(TimeoutError, match="a: b"):
        kopf_cluster.wait_for("cm", "one", {"data": {"a": "c"}}, timeout=0.1)


@pytest.mark.contract("api 6.2")
def test_clusters_are_apart():
    with Cluster() as one, Cluster() as two:
        one.apply(POD)
        assert one.url != two.url
        assert two.find("cm", "one") is None


def test_the_objects_survive_in_a_file(tmp_path):
    with Cluster() as first:
        first.apply(POD)
        owner = first.get("cm", "one")["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": owner}
        first.patch("cm", "two", {"metadata": {"ownerReferences": [reference]}})
        kept = snapshot.save(first, tmp_path / "state.json").total
        names = {it["metadata"]["name"] for it in first.list("cm")}
    with Cluster() as second:
        assert snapshot.load(second, tmp_path / "state.json") == (kept, [])
        assert {it["metadata"]["name"] for it in second.list("cm")} == names
        [back] = second.get("cm", "two")["metadata"]["ownerReferences"]
        assert back["uid"] == second.get("cm", "one")["metadata"]["uid"] != owner


def test_the_runner_connects_to_its_cluster_in_spite_of_login_handlers(kopf_cluster, tmp_path):
    file = tmp_path / "handlers.py"
    file.write_text(
        "import kopf\n"
        "@kopf.on.login()\n"
        "def log_in(logger, **_):\n"
        "    logger.info('Client libraries are set up.')\n"
        "    return kopf.ConnectionInfo(server='https://real.example.com', priority=1000)\n"
        "@kopf.on.create('configmaps')\n"
        "def mark(patch, **_):\n"
        "    patch.meta.labels['seen'] = 'yes'\n"
    )
    with KopfRunner(
        ["run", "-A", str(file)], cluster=kopf_cluster, timeout=60, registry=kopf.OperatorRegistry()
    ) as runner:
        kopf_cluster.apply(POD)
        kopf_cluster.wait_for("configmaps", "two", {"metadata": {"labels": {"seen": "yes"}}})
    assert runner.exit_code == 0
    assert "Client libraries are set up." in runner.output


@pytest.mark.kopf_embedded_only
def test_startup_handlers_that_do_not_return_are_an_error(cluster):
    def handlers():
        @kopf.on.startup()
        async def connect(**_):
            await asyncio.sleep(1000)

    with pytest.raises(TimeoutError, match=r"startup handlers have not finished in 0\.2 seconds"):
        Operator(cluster, handlers, startup_timeout=0.2, timeout=10).start()


@pytest.mark.kopf_embedded_only
def test_local_functions_have_short_ids(cluster, make, kopf_operator):
    def handlers():
        @kopf.on.create("widgets")
        def greet(**_):
            return 1

        @kopf.on.field("widgets", field="spec.size")
        def greet_size(**_):
            return 2

    kopf_operator(handlers)
    make()
    cluster.wait_for("widgets", "one", {"status": {"greet": 1, "greet_size/spec.size": 2}})


@pytest.mark.kopf_embedded_only
def test_equal_short_ids_are_kept_apart(cluster, kopf_operator):
    def handlers():
        def one():
            @kopf.on.create("widgets")
            def greet(**_): ...

        def two():
            @kopf.on.create("widgets")
            def greet(**_): ...

        one()
        two()

    operator = kopf_operator(handlers)
    ids = [str(handler.id) for handler in operator.registry._changing.get_all_handlers()]
    assert len(set(ids)) == 2


@pytest.mark.kopf_embedded_only
def test_mistakes_in_tests_are_explained(kopf_cluster, kopf_operator):
    with pytest.raises(ValueError, match=r"'3 dyas' is not a duration such as '3 days', '90s' or '1h 30m'"):
        kopf_cluster.advance("3 dyas")
    with pytest.raises(TypeError, match=r"a datetime\.timedelta, or a text such as .*, not list \[\]"):
        kopf_cluster.advance([])
    with pytest.raises(FileNotFoundError, match=r"There is no file 'nope\.py' with handlers in"):
        kopf_operator("nope.py")


def test_the_last_state_is_shown_with_what_is_awaited(kopf_cluster):
    kopf_cluster.apply(POD)
    with pytest.raises(TimeoutError) as error:
        kopf_cluster.wait_for("cm", "one", {"data": {"a": "c"}}, timeout=0.1)
    text = str(error.value)
    assert (
        "The difference:\n--- expected\n+++ last state\n data:\n-  a: c\n+  a: b\nThe last state:\n" in text
    )
    assert "managedFields" not in text


def test_errors_of_manifests_name_the_file(tmp_path, kopf_cluster):
    (tmp_path / "bad.yaml").write_text("a: [")
    (tmp_path / "text.yaml").write_text("just a text")
    with pytest.raises(yaml.YAMLError, match=r"bad\.yaml"):
        kopf_cluster.apply(tmp_path / "bad.yaml")
    with pytest.raises(TypeError, match=r"text\.yaml is not a manifest"):
        kopf_cluster.apply(tmp_path / "text.yaml")


def test_nothing_in_the_testing_kit_is_deprecated():
    objects = [getattr(kopf.testing, name) for name in kopf.testing.__all__]
    members = [getattr(owner, name) for owner in objects for name in dir(owner) if not name.startswith("_")]
    assert len(members) > 50
    assert [it for it in [*objects, *members] if "deprecated" in (inspect.getdoc(it) or "").lower()] == []
    assert not hasattr(kopf.testing, "__getattr__"), "names that are not listed"


def test_the_connections_of_all_threads_are_closed():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        with Cluster() as cluster, concurrent.futures.ThreadPoolExecutor(3) as threads:
            barrier = threading.Barrier(3)

            def request():
                barrier.wait(10)
                cluster.list("namespaces")

            for pending in [threads.submit(request) for _ in range(3)]:
                pending.result(10)
        gc.collect()
    assert [str(it.message) for it in caught if issubclass(it.category, ResourceWarning)] == []


@pytest.mark.kopf_embedded_only
@pytest.mark.parametrize("line", ["text", "42", '{"level": "info"}', "[2026-01-01] Started.", "null"])
def test_texts_are_not_decoded(cluster, line):
    spec = {"containers": [{"name": "main", "image": "image"}]}
    cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec})
    cluster.script("one", logs=[line])
    with Cluster("kubeconfig", kubeconfig=cluster.kubeconfig) as other:
        for one in (cluster, other):
            assert one.call("GET", "/api/v1/namespaces/default/pods/one/log") == f"{line}\n"
            assert one.call("GET", "/healthz") == "ok"
            assert one.call("GET", "/version")["major"]
            with pytest.raises(ApiError, match="404 page not found"):
                one.call("GET", "/nosuch")
