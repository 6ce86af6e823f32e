"""Logging, loading, logins, stoppers, hierarchies, events, the command line, private paths of
Kopf 1.45.
"""

import asyncio
import json
import logging
import os
import queue
import subprocess
import sys
import threading

import click.testing
import kopf
import pytest
from kopf._intents.causes import ChangingCause
from kopf._objects.stoppers import DaemonStoppingReason, FlagSetter
from kopf._runtime import context as ctx
from kopf._runtime import loaders, loggers, posting

OWNER = kopf.Body(
    {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "own", "uid": "u", "namespace": "ns", "labels": {"a": "b"}},
    }
)


def formatted(formatter, **extra):
    record = logging.makeLogRecord(
        {"name": "kopf.objects", "levelno": 25, "msg": "hello %s", "args": ("x",), **extra}
    )
    return formatter.format(record)


def test_text_logs_have_prefixes():
    ref = {"name": "n", "namespace": "ns"}
    formatter = loggers.make_formatter(kopf.LogFormat.PLAIN, None)
    assert formatted(formatter, k8s_ref=ref) == "[ns/n] hello x"
    assert formatted(formatter, k8s_ref={"name": "n"}) == "[n] hello x"
    assert formatted(loggers.make_formatter(kopf.LogFormat.PLAIN), k8s_ref=ref) == "hello x"


def test_json_logs_have_objects():
    ref = {"name": "n", "namespace": None}
    data = json.loads(
        formatted(loggers.make_formatter(kopf.LogFormat.JSON), k8s_ref=ref, settings=1, user="y")
    )
    assert data.pop("timestamp").endswith("+00:00")
    assert data == {"message": "hello x", "user": "y", "object": ref, "severity": "warn"}


def test_unknown_formats_are_rejected():
    with pytest.raises(ValueError, match="Unsupported log format: 5"):
        kopf.configure(log_format=5)


def test_loggers_know_their_objects(caplog):
    settings = kopf.OperatorSettings()
    kopf.LocalObjectLogger(body=OWNER, settings=settings).warning("m", extra={"k8s_skip": False})
    (record,) = caplog.records
    assert record.k8s_skip is True
    assert record.k8s_ref == {"apiVersion": "v1", "kind": "K", "name": "own", "uid": "u", "namespace": "ns"}


def test_files_are_loaded_with_their_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_op.py").write_text("x = 5")
    (tmp_path / "op.py").write_text("import neighbour_of_op\nname, x = __name__, neighbour_of_op.x")
    path = str(tmp_path / "op.py")
    loaders.preload([path], ["json"])
    module = sys.modules.pop(f"__kopf_script_0__{path}")
    assert (module.name, module.x) == (f"__kopf_script_0__{path}", 5)
    with pytest.raises(ImportError, match="no module or loader"):
        loaders.preload([str(tmp_path / "op.txt")], [])


def test_kubeconfigs_are_merged(tmp_path, monkeypatch):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: cl, user: u, namespace: n}}]\n"
        "users: [{name: u, user: {token: first}}]"
    )
    two.write_text(
        "clusters: [{name: cl, cluster: {server: 'https://h'}}]\nusers: [{name: u, user: {token: second}}]"
    )
    monkeypatch.setenv("KUBECONFIG", f"{one}{os.pathsep}{two}")
    info = kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())
    assert (info.server, info.token, info.default_namespace, info.priority) == ("https://h", "first", "n", 10)
    monkeypatch.setenv("KUBECONFIG", str(two))
    with pytest.raises(kopf.LoginError, match=r"Current context is not set in kubeconfigs."):
        kopf.login_with_kubeconfig(settings=kopf.OperatorSettings())


def test_stoppers_wake_threads_and_loops():
    setter = FlagSetter()

    async def main():
        assert repr(setter.async_waiter) == "<AsyncFlagWaiter: False, reason=None>"
        assert not await setter.async_waiter.wait(0.001)
        threading.Timer(0.01, setter.set, [DaemonStoppingReason.DONE]).start()
        assert await setter.async_waiter.wait() is setter.async_waiter
        with pytest.raises(NotImplementedError, match="should not be awaited directly"):
            await setter.async_waiter

    asyncio.run(main())
    setter.set(DaemonStoppingReason.OPERATOR_EXITING)
    assert setter.sync_waiter.wait(0) is setter.sync_waiter
    assert setter.sync_waiter.reason == DaemonStoppingReason.DONE | DaemonStoppingReason.OPERATOR_EXITING
    assert setter.is_set(DaemonStoppingReason.DONE)


def test_adoption_is_ownership_names_namespace_and_labels():
    child = {}
    kopf.adopt(child, OWNER)
    assert list(child["metadata"]) == ["ownerReferences", "generateName", "namespace", "labels"]
    assert child["metadata"]["generateName"] == "own-"
    kopf.remove_owner_reference(child, OWNER)
    assert child["metadata"]["ownerReferences"] == []


def test_owner_is_the_object_being_handled():
    with pytest.raises(LookupError, match="Owner must be set explicitly"):
        kopf.adopt({})
    cause = ChangingCause(
        logger=None,
        indices={},
        memo=None,
        resource=kopf.Resource("", "v1", "x"),
        patch=kopf.Patch(),
        body=OWNER,
        initial=False,
        reason=kopf.Reason.CREATE,
    )
    with ctx.context([(ctx.cause_var, cause)]):
        children = [{}, {}]
        kopf.adopt(child for child in children)
    assert [child["metadata"]["namespace"] for child in children] == ["ns", "ns"]


def test_events_are_gated_and_queued():
    with pytest.raises(LookupError):
        kopf.info(OWNER, reason="R")
    settings, items = kopf.OperatorSettings(), queue.Queue()

    async def main():
        loop = asyncio.get_running_loop()
        values = [
            (ctx.settings_var, settings),
            (ctx.event_queue_var, items),
            (ctx.event_queue_loop_var, loop),
        ]
        with ctx.context(values):
            kopf.event([OWNER, [OWNER]], type="T", reason="R")
            settings.posting.enabled = False
            kopf.info(OWNER, reason="R")
            kopf.warn(OWNER, reason="W", message="m", backoffs=1)

    asyncio.run(main())
    posted = [items.get_nowait() for _ in range(items.qsize())]
    assert [(item.type, item.reason) for item in posted] == [("T", "R"), ("T", "R"), ("Warning", "W")]
    assert posted[-1].backoffs == 1
    assert isinstance(posted[0], posting.K8sEvent)


@pytest.fixture()
def invoked(monkeypatch):
    from types import ModuleType

    calls = []
    operator = ModuleType("kopf._runtime.operator")
    operator.run = lambda **kwargs: calls.append(kwargs)
    monkeypatch.setitem(sys.modules, "kopf._runtime.operator", operator)
    monkeypatch.setattr("kopf._runtime.operator", operator, raising=False)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level

    def invoke(*args, **env):
        from kopf import cli

        result = click.testing.CliRunner().invoke(cli.main, ["run", *args], env=env)
        return result, calls[-1] if calls else None

    yield invoke
    root.handlers[:], root.level = handlers, level


def test_options_reach_the_operator(invoked):
    result, kwargs = invoked(
        "-n", "c", "--dev", "-p", "3", KOPF_RUN_NAMESPACE="z", KOPF_RUN_STANDALONE="false"
    )
    assert result.exit_code == 0
    assert kwargs["namespaces"] == ("c", "z")
    assert kwargs["priority"] == 666
    assert kwargs["standalone"] is False
    _, kwargs = invoked(
        KOPF_RUN_NAMESPACES="a b", KOPF_RUN_LIVENESS_ENDPOINT="http://h", KOPF_RUN_PEERING="p"
    )
    assert kwargs["namespaces"] == ("a", "b")
    assert (kwargs["liveness_endpoint"], kwargs["peering_name"]) == ("http://h", "p")


def test_scopes_exclude_each_other(invoked):
    result, _ = invoked("-A", "-n", "x")
    assert result.exit_code == 2
    assert "Error: Either --namespace or --all-namespaces can be used, not both." in result.output


def test_runner_runs_a_command_and_stops_it(invoked, monkeypatch):
    from kopf.testing import KopfRunner

    monkeypatch.setattr("kopf._runtime.operator.run", lambda stop_flag, **_: stop_flag.wait())
    with KopfRunner(["run", "-A"], timeout=5, registry=kopf.OperatorRegistry()) as runner:
        assert not runner.future.done()
    assert (runner.exit_code, runner.exception) == (0, None)
    with pytest.raises(SystemExit), KopfRunner(["run", "--nope"], timeout=5):
        pass


def test_tasks_that_do_not_hang_are_not_stopped(caplog):
    caplog.set_level("DEBUG")

    async def main():
        tasks = [asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(asyncio.sleep(100))]
        await kopf.run_tasks(tasks)

    asyncio.run(main())
    messages = [message for message in caplog.messages if "tasks" in message]
    assert messages == [
        "Root tasks are stopped: finishing normally; tasks left: set()",
        "Hung tasks stopping is skipped: no tasks given.",
    ]


def test_private_paths_of_the_original_are_answered_with_a_warning():
    with pytest.warns(DeprecationWarning, match="use kopf.Body"):
        from kopf._cogs.structs.bodies import Body
    assert Body is kopf.Body
    with pytest.warns(DeprecationWarning, match="use kopf.Diff"):
        import kopf._cogs.structs.diffs as diffs

        assert diffs.Diff is kopf.Diff


def test_other_private_paths_fail_with_advice():
    with pytest.raises(ImportError, match=r"kopf.operator\(\)"):
        import kopf._core.engines.nope  # noqa: F401
    with pytest.raises(ImportError, match=r"cannot import name|kopf.__all__"):
        from kopf._cogs.structs.bodies import nope  # noqa: F401


def test_importing_is_cheap():
    heavy = "asyncio click yaml dataclasses inspect typing enum logging kopf._kopf"
    script = (
        "import sys; before = set(sys.modules); import kopf, kopf.on; "
        f"print(set({heavy.split()}) & (set(sys.modules) - before))"
    )
    output = subprocess.check_output(
        [sys.executable, "-S", "-c", script],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert output.strip() == b"set()"
