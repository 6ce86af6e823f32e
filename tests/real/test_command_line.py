"""The command line: loading, scopes, logging, exit codes."""

import json
import re
import signal

import pytest

from tests.support.fixtures import Shelf

pytestmark = pytest.mark.contract("api 5.6")

PREAMBLE = """
from calls import called
import kopf
"""

SIMPLE = (
    PREAMBLE
    + """
@kopf.on.startup()
def begin(**_):
    called('begin')

@kopf.on.cleanup()
def end(**_):
    called('end')

@kopf.on.create('parcels')
def create(name, namespace, logger, **_):
    called('create', namespace=namespace)
    logger.debug("A debug line.")
    logger.info("An info line.")
    logger.warning("A warning line.")
"""
)


@pytest.mark.contract("api 5.6")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=lambda signum: signum.name)
def test_signals_stop_the_operator_with_cleanup(operator, shelf, signum):
    run = operator(SIMPLE)
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    assert run.stop(signum) == 0
    assert [call.handler for call in run.calls] == ["begin", "create", "end"]
    assert f"Signal {signum.name} is received. Operator is stopping." in run.log
    assert "Traceback" not in run.log


@pytest.mark.contract("api 5.6")
def test_another_signal_to_terminate_changes_nothing(operator):
    run = operator(
        PREAMBLE
        + """
import asyncio, pathlib

@kopf.on.cleanup()
async def end(**_):
    called('end')
    while not pathlib.Path('go').exists():
        await asyncio.sleep(0.05)
    called('done')

@kopf.on.create('parcels')
def create(**_):
    pass
"""
    )
    run.wait_for_log("Starting the watch-stream for parcels")
    run.process.send_signal(signal.SIGTERM)
    run.wait_for_call("end")
    run.process.send_signal(signal.SIGTERM)
    (operator.folder / "go").touch()
    assert run.wait_for_exit() == 0
    assert [call.handler for call in run.calls] == ["end", "done"]


def test_a_second_interrupt_ends_the_process_at_once(operator):
    run = operator(
        PREAMBLE
        + """
import asyncio

@kopf.on.cleanup()
async def end(**_):
    called('end')
    await asyncio.sleep(1000)

@kopf.on.create('parcels')
def create(**_):
    pass
"""
    )
    run.wait_for_log("Starting the watch-stream for parcels")
    run.process.send_signal(signal.SIGINT)
    run.wait_for_log("Waiting for 1 handler: end ")
    run.process.send_signal(signal.SIGINT)
    assert run.wait_for_exit() == 130
    assert "Operator is stopped at once, without cleanup. Not finished: 1 handler: end (" in run.log


def test_signal_before_the_cluster_answers_stops_at_once(operator, control_plane):
    run = operator(
        PREAMBLE
        + """
@kopf.on.startup()
async def endless(settings, **_):
    settings.networking.error_backoffs = [600]

@kopf.on.create('parcels')
def create(**_):
    pass
""",
        kubeconfig=control_plane.write_kubeconfig(server="https://127.0.0.1:1"),
    )
    run.wait_for_log("Request attempt #1/.* failed; will retry")
    assert run.stop() == 0


def test_several_files_are_loaded_in_order_and_find_their_neighbours(operator, shelf):
    operator.write('def where(): return "by a neighbour"\n', "neighbour.py")
    operator.write(
        """
        from calls import called
        import kopf, neighbour
        called('load-one')

        @kopf.on.create('parcels')
        def one(**_):
            return neighbour.where()
        """,
        "one.py",
    )
    operator.write(
        """
        from calls import called
        import kopf
        called('load-two')

        @kopf.on.create('parcels')
        def two(**_):
            called('module', name=__name__)
        """,
        "two.py",
    )
    run = operator(files=("one.py", "two.py"))
    shelf.create("p1")
    shelf.wait_until_handled("p1", status={"one": "by a neighbour"})
    assert [call.handler for call in run.calls][:2] == ["load-one", "load-two"]
    assert run.called("module")[0].details == {"name": "__kopf_script_1__two.py"}


@pytest.mark.contract("api 5.4")
def test_modules_are_loaded_by_name_after_the_files(operator, shelf):
    (operator.folder / "package").mkdir()
    operator.write("", "package/__init__.py")
    operator.write(
        """
        from calls import called
        import kopf
        called('load-module')

        @kopf.on.create('parcels')
        def inside(**_):
            called('inside', name=__name__)
        """,
        "package/rooms.py",
    )
    operator.write("from calls import called\ncalled('load-file')\n", "first.py")
    run = operator(None, "-m", "package.rooms", files=("first.py",))
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    assert [call.handler for call in run.calls] == ["load-file", "load-module", "inside"]
    assert run.called("inside")[0].details == {"name": "package.rooms"}


def test_namespaces_by_names_are_served_and_no_others(operator, cluster, parcels, new_namespace):
    names = [new_namespace("one"), new_namespace("two"), new_namespace("other")]
    run = operator(SIMPLE, scope=("-n", names[0], "--namespace", names[1]))
    for name in reversed(names):
        Shelf(cluster, parcels, name).create("p1")
    for name in names[:2]:
        Shelf(cluster, parcels, name).wait_until_handled("p1")
    assert sorted(call.details["namespace"] for call in run.called("create")) == sorted(names[:2])


def test_namespaces_by_globs_are_served_also_when_they_come_later(operator, cluster, parcels, new_namespace):
    early, excluded = new_namespace("glob-a"), new_namespace("glob-not")
    run = operator(SIMPLE, scope=("-n", "glob-*,!glob-not-*"))
    run.wait_for_log(f"Starting the watch-stream for parcels.* in '{early}'")
    late = new_namespace("glob-b")
    Shelf(cluster, parcels, excluded).create("p1")
    for name in (early, late):
        shelf = Shelf(cluster, parcels, name)
        shelf.create("p1")
        shelf.wait_until_handled("p1")
    assert {call.details["namespace"] for call in run.called("create")} == {early, late}


@pytest.mark.contract("engine 1.7")
def test_all_namespaces_are_served_by_one_stream(operator, shelf):
    run = operator(SIMPLE, scope=("-A",))
    run.wait_for_log(r"Starting the watch-stream for parcels\.v1\.testing\.kopf\.dev cluster-wide\.")
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    assert shelf.namespace in [call.details["namespace"] for call in run.called("create")]


@pytest.mark.contract("api E")
def test_no_scope_is_warned_about_and_means_everything(operator, shelf):
    run = operator(SIMPLE, scope=())
    run.wait_for_log(
        "FutureWarning: Absence of either namespaces or cluster-wide flag will become an error soon."
    )
    run.wait_for_log(r"Starting the watch-stream for parcels\.v1\.testing\.kopf\.dev cluster-wide\.")


@pytest.mark.contract("api 5.3")
def test_namespaces_and_all_namespaces_together_are_rejected(operator):
    run = operator(SIMPLE, scope=("-A", "-n", "x"))
    assert run.wait_for_exit() == 2
    assert "Error: Either --namespace or --all-namespaces can be used, not both." in run.log


@pytest.mark.contract("api 5.3")
def test_unknown_option_is_rejected_with_the_usage(operator):
    run = operator(SIMPLE, "--no-such-option")
    assert run.wait_for_exit() == 2
    assert "Usage: " in run.log and "No such option" in run.log


@pytest.mark.contract("api 5.2")
def test_options_come_from_the_environment_too(operator, shelf):
    run = operator(
        SIMPLE,
        scope=(),
        options=(),
        environment={"KOPF_RUN_NAMESPACES": f"nowhere {shelf.namespace}", "KOPF_RUN_VERBOSE": "true"},
    )
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    run.wait_for_log("A debug line.")


@pytest.mark.contract("api 5.5")
@pytest.mark.parametrize(
    "options, levels",
    [
        ((), {"INFO", "WARNING"}),
        (("--quiet",), {"WARNING"}),
        (("--verbose",), {"DEBUG", "INFO", "WARNING"}),
        (("--debug",), {"DEBUG", "INFO", "WARNING"}),
    ],
    ids=["default", "quiet", "verbose", "debug"],
)
def test_verbosity(operator, shelf, options, levels):
    run = operator(SIMPLE, options=options)
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    assert run.stop() == 0
    found = set(
        re.findall(r"^\[[0-9: ,-]+\] kopf\.objects +\[(\w+) *\] \[\S+/p1\] An? \w+ line\.$", run.log, re.M)
    )
    assert found == levels
    assert ("Creation is processed" in run.log) == ("INFO" in levels)


@pytest.mark.contract("api 5.5")
def test_plain_format_is_the_message_with_the_object(operator, shelf):
    run = operator(SIMPLE, options=("--log-format", "plain"))
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    run.wait_for_log(rf"^\[{shelf.namespace}/p1\] An info line\.$")
    run.wait_for_log(r"^Initial authentication has finished\.$")


@pytest.mark.contract("engine 14")
def test_json_format_is_one_object_per_line(operator, shelf):
    run = operator(SIMPLE, options=("--log-format", "json"))
    made = shelf.create("p1")
    shelf.wait_until_handled("p1")
    assert run.stop() == 0
    records = [json.loads(line) for line in run.log.splitlines()]
    [ours] = [record for record in records if record["message"] == "An info line."]
    assert ours["severity"] == "info"
    assert ours["timestamp"].endswith("+00:00")
    assert ours["object"] == {
        "apiVersion": "testing.kopf.dev/v1",
        "kind": "Parcel",
        "name": "p1",
        "uid": made["metadata"]["uid"],
        "namespace": shelf.namespace,
    }
    assert any(record["message"] == "Creation is processed: 1 succeeded; 0 failed." for record in records)


def test_json_format_keeps_the_object_under_the_given_key(operator, shelf):
    run = operator(SIMPLE, options=("--log-format", "json", "--log-refkey", "about", "--log-prefix"))
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    assert run.stop() == 0
    records = [json.loads(line) for line in run.log.splitlines()]
    [ours] = [record for record in records if record["message"] == f"[{shelf.namespace}/p1] An info line."]
    assert ours["about"]["name"] == "p1"


def test_no_prefix_leaves_the_message_alone(operator, shelf):
    run = operator(SIMPLE, options=("--no-log-prefix",))
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    run.wait_for_log(r"\[INFO *\] An info line\.$")
