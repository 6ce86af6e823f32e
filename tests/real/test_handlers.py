"""Change handlers on a real cluster, and the annotations and status that they leave on the object."""

import pytest

from tests.support import cluster as kube

PREAMBLE = """
from calls import called
import kopf
"""


def test_creation_leaves_the_result_in_the_status_and_the_essence_in_an_annotation(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def weigh(spec, name, namespace, uid, meta, body, logger, **_):
    logger.info(f"Weighing {name}.")
    called('weigh', name=name, namespace=namespace, uid=uid, kind=body['kind'], labels=dict(meta.labels))
    return {'grams': spec['size'] * 10, 'unit': 'g'}
"""
    )
    made = shelf.create("p1", {"size": 7}, labels={"fragile": "yes"})
    body = shelf.wait_until_handled("p1", status={"weigh": {"grams": 70, "unit": "g"}})
    assert kube.essence(body) == {"metadata": {"labels": {"fragile": "yes"}}, "spec": {"size": 7}}
    assert body["metadata"].get("finalizers") is None
    assert [call.details for call in run.called("weigh")] == [
        {
            "name": "p1",
            "namespace": shelf.namespace,
            "uid": made["metadata"]["uid"],
            "kind": "Parcel",
            "labels": {"fragile": "yes"},
        }
    ]


@pytest.mark.contract("engine 7.4")
def test_last_handled_annotation_is_written_byte_by_byte_as_in_the_reference(operator, shelf):
    operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def weigh(**_):
    pass
"""
    )
    shelf.create("p1", {"z": 1, "a": "ключ", "list": [1, 2.5, None, True], "empty": {}})
    body = shelf.wait_until_handled("p1")
    text = body["metadata"]["annotations"][kube.PREFIX + "last-handled-configuration"]
    assert text.endswith("}\n")
    assert r'"a":"\u043a\u043b\u044e\u0447"' in text
    assert '"list":[1,2.5,null,true]' in text
    assert ", " not in text and ": " not in text


@pytest.mark.contract("engine 3.6", "api A")
def test_creation_is_logged_in_the_lines_that_users_grep_for(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def weigh(logger, **_):
    logger.info("Weighing now.")
    return 1
"""
    )
    shelf.create("p1", {"size": 7})
    shelf.wait_until_handled("p1")
    prefix = rf"^\[[0-9: ,-]+\] kopf\.objects +\[{{}} *\] \[{shelf.namespace}/p1\] "
    for level, text in [
        ("DEBUG", r"Creation is in progress: \{.*\'kind\': \'Parcel\'.*\}"),
        ("DEBUG", r"Handler 'weigh' is invoked\."),
        ("INFO", r"Weighing now\."),
        ("INFO", r"Handler 'weigh' succeeded\."),
        ("INFO", r"Creation is processed: 1 succeeded; 0 failed\."),
        (
            "DEBUG",
            r"Merge-patching the resource with: \{'metadata': \{'annotations': \{.*last-handled-conf.*\}",
        ),
        ("DEBUG", r"Merge-patching the status with: \{'status': \{'weigh': 1\}\}"),
        ("DEBUG", r"Handling cycle is finished, waiting for new changes\."),
    ]:
        run.wait_for_log(prefix.format(level) + text, timeout=20)


def test_start_is_logged(operator):
    run = operator("@kopf.on.create('parcels')\ndef fn(**_): pass\n")
    run.wait_for_log(r"\[DEBUG *\] Starting Kopf ")
    run.wait_for_log(r"kopf\.activities\.star.*\[INFO *\] Activity 'haste' succeeded\.")
    run.wait_for_log(r"\[INFO *\] Initial authentication has been initiated\.")
    run.wait_for_log(r"\[INFO *\] Initial authentication has finished\.")
    run.wait_for_log(
        rf"Starting the watch-stream for parcels\.v1\.testing\.kopf\.dev in '{operator.namespace}'\."
    )


@pytest.mark.contract("engine 4.4")
def test_update_gets_the_old_the_new_and_the_difference(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def create(**_):
    pass

@kopf.on.update('parcels')
def update(old, new, diff, spec, **_):
    called('update', old=old['spec'], new=new['spec'], diff=sorted(map(list, diff), key=str))
"""
    )
    shelf.create("p1", {"size": 1, "gone": "x"})
    shelf.wait_until_handled("p1")
    shelf.patch("p1", {"spec": {"size": 2, "gone": None, "come": [1]}})
    shelf.wait_until_handled("p1")
    assert [call.details for call in run.called("update")] == [
        {
            "old": {"size": 1, "gone": "x"},
            "new": {"size": 2, "come": [1]},
            "diff": [
                ["add", ["spec", "come"], None, [1]],
                ["change", ["spec", "size"], 1, 2],
                ["remove", ["spec", "gone"], "x", None],
            ],
        }
    ]
    run.wait_for_log(r"Updating diff: \(\(")
    run.wait_for_log(r"Updating is processed: 1 succeeded; 0 failed\.")


def test_change_of_the_status_alone_is_no_update(operator, shelf, cluster):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def create(**_):
    pass

@kopf.on.update('parcels')
def update(**_):
    called('update')
"""
    )
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1")
    cluster.patch(shelf.resource, shelf.namespace, "p1", {"status": {"seen": True}}, "status")
    run.wait_for_log(r"Something has changed, but we are not interested \(the essence is the same\)\.")
    assert not run.called("update")


@pytest.mark.contract("engine 4.4")
def test_field_handler_sees_its_field_alone(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.field('parcels', field='spec.size')
def resize(old, new, diff, reason, **_):
    called('resize', old=old, new=new, diff=list(map(list, diff)), reason=str(reason))
"""
    )
    shelf.create("p1", {"size": 1, "other": 1})
    shelf.wait_until_handled("p1")
    shelf.patch("p1", {"spec": {"other": 2}})
    shelf.wait_until_handled("p1")
    shelf.patch("p1", {"spec": {"size": 5}})
    shelf.wait_until_handled("p1")
    assert [call.details for call in run.called("resize")] == [
        {"old": None, "new": 1, "diff": [["add", [], None, 1]], "reason": "create"},
        {"old": 1, "new": 5, "diff": [["change", [], 1, 5]], "reason": "update"},
    ]


def test_deletion_waits_for_its_handler_and_then_goes_on(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def create(**_):
    pass

@kopf.on.delete('parcels')
def delete(meta, **_):
    called('delete', deleting=bool(meta.get('deletionTimestamp')), finalizers=list(meta['finalizers']))
"""
    )
    shelf.create("p1", {"size": 1})
    body = shelf.wait_until_handled("p1")
    assert body["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]
    shelf.delete("p1")
    shelf.wait_until_gone("p1")
    assert [call.details for call in run.called("delete")] == [
        {"deleting": True, "finalizers": ["kopf.zalando.org/KopfFinalizerMarker"]}
    ]
    for text in [
        "Adding the finalizer, thus preventing the actual deletion.",
        "Deletion is in progress: ",
        "Handler 'delete' succeeded.",
        "Deletion is processed: 1 succeeded; 0 failed.",
        "Removing the finalizer, thus allowing the actual deletion.",
        "Deleted, really deleted, and we are notified.",
    ]:
        run.wait_for_log(text.replace(".", r"\."), timeout=20)


@pytest.mark.contract("engine 3.5")
def test_foreign_finalizers_are_left_alone(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.delete('parcels')
def delete(**_):
    called('delete')
"""
    )
    shelf.create("p1", {"size": 1}, finalizers=["example.com/theirs"])
    body = shelf.wait("p1", lambda body: len(body["metadata"]["finalizers"]) == 2)
    assert body["metadata"]["finalizers"] == ["example.com/theirs", "kopf.zalando.org/KopfFinalizerMarker"]
    shelf.delete("p1")
    run.wait_for_call("delete")
    body = shelf.wait("p1", lambda body: len(body["metadata"]["finalizers"]) == 1)
    assert body["metadata"]["finalizers"] == ["example.com/theirs"]
    shelf.patch("p1", {"metadata": {"finalizers": None}})
    shelf.wait_until_gone("p1")
    assert len(run.called("delete")) == 1


@pytest.mark.contract("observed 3")
def test_optional_deletion_handler_does_not_hold_the_object(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def create(**_):
    pass

@kopf.on.delete('parcels', optional=True)
def delete(**_):
    called('delete')
"""
    )
    shelf.create("p1", {"size": 1})
    body = shelf.wait_until_handled("p1")
    assert "finalizers" not in body["metadata"]
    shelf.delete("p1")
    shelf.wait_until_gone("p1")
    run.wait_for_log(r"Deleted, really deleted, and we are notified\.")


def test_event_handler_sees_every_kind_of_event(operator, shelf):
    shelf.create("old", {"size": 1})
    run = operator(
        PREAMBLE
        + """
@kopf.on.event('parcels')
def watch(event, type, name, **_):
    called('watch', event=event['type'], type=type, name=name)
"""
    )
    run.wait_for_call("watch")
    run.wait_for_log("Starting the watch-stream for parcels")
    shelf.create("new", {"size": 1})
    run.wait_for_call("watch", count=2)
    shelf.patch("new", {"spec": {"size": 2}})
    run.wait_for_call("watch", count=3)
    shelf.delete("new")
    run.wait_for_call("watch", count=4)
    seen = [(call.details["name"], call.details["type"]) for call in run.called("watch")]
    assert seen == [("old", None), ("new", "ADDED"), ("new", "MODIFIED"), ("new", "DELETED")]
    assert all(call.details["type"] == call.details["event"] for call in run.called("watch"))
    assert "annotations" not in shelf.get("old")["metadata"], "raw events leave no traces on the objects"


def test_startup_comes_first_and_cleanup_comes_last(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.startup()
async def begin(memo, **_):
    memo.greeting = 'hello'
    called('begin')

@kopf.on.cleanup()
def end(memo, **_):
    called('end', greeting=memo.greeting)

@kopf.on.create('parcels')
def create(memo, **_):
    called('create', greeting=memo.greeting)
"""
    )
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    assert run.stop() == 0
    assert [(call.handler, call.details.get("greeting")) for call in run.calls] == [
        ("begin", None),
        ("create", "hello"),
        ("end", "hello"),
    ]


@pytest.mark.contract("engine 0.5")
def test_sync_and_async_handlers_run_with_the_same_arguments(operator, shelf):
    run = operator(
        PREAMBLE
        + """
import threading

@kopf.on.create('parcels')
def sync(**kwargs):
    called('sync', names=sorted(kwargs), main=threading.current_thread() is threading.main_thread())

@kopf.on.create('parcels')
async def coro(**kwargs):
    called('coro', names=sorted(kwargs), main=threading.current_thread() is threading.main_thread())
"""
    )
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1")
    [sync], [coro] = run.called("sync"), run.called("coro")
    assert sync.details["names"] == coro.details["names"]
    assert {
        "body",
        "spec",
        "meta",
        "status",
        "uid",
        "name",
        "namespace",
        "labels",
        "annotations",
        "patch",
        "logger",
        "memo",
        "param",
        "retry",
        "started",
        "runtime",
        "reason",
        "old",
        "new",
        "diff",
        "resource",
    } <= set(sync.details["names"])
    assert not sync.details["main"]


def test_patch_of_a_handler_is_applied_with_the_rest(operator, shelf):
    operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def create(patch, **_):
    patch.metadata.labels['stamped'] = 'yes'
    patch.status['phase'] = 'Sent'
"""
    )
    shelf.create("p1", {"size": 1})
    body = shelf.wait_until_handled("p1", status={"phase": "Sent"})
    assert body["metadata"]["labels"] == {"stamped": "yes"}


@pytest.mark.contract("api 1.5")
def test_filters_choose_objects(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels', labels={'color': 'red'})
def label(name, **_):
    called('label', name=name)

@kopf.on.create('parcels', labels={'color': kopf.ABSENT})
def absent(name, **_):
    called('absent', name=name)

@kopf.on.create('parcels', annotations={'note': kopf.PRESENT})
def annotation(name, **_):
    called('annotation', name=name)

@kopf.on.create('parcels', when=lambda spec, **_: spec.get('size', 0) > 5)
def when(name, **_):
    called('when', name=name)

@kopf.on.create('parcels', field='spec.kind', value='gift')
def value(name, **_):
    called('value', name=name)

@kopf.on.create('parcels')
def everything(**_):
    pass
"""
    )
    shelf.create("red", {"size": 1}, labels={"color": "red"}, annotations={"note": "any"})
    shelf.create("big", {"size": 9}, labels={"color": "blue"})
    shelf.create("gift", {"kind": "gift"})
    for name in ("red", "big", "gift"):
        shelf.wait_until_handled(name)
    assert {(call.handler, call.details["name"]) for call in run.calls} == {
        ("label", "red"),
        ("annotation", "red"),
        ("when", "big"),
        ("absent", "gift"),
        ("value", "gift"),
    }


def test_unmatched_objects_are_left_untouched(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels', labels={'color': 'red'})
@kopf.on.delete('parcels', labels={'color': 'red'})
def fn(name, **_):
    called('fn', name=name)
"""
    )
    shelf.create("blue", {"size": 1}, labels={"color": "blue"})
    shelf.create("red", {"size": 1}, labels={"color": "red"})
    shelf.wait_until_handled("red")
    assert [call.details["name"] for call in run.called("fn")] == ["red"]
    metadata = shelf.get("blue")["metadata"]
    assert "annotations" not in metadata and "finalizers" not in metadata


def test_temporary_errors_are_retried_after_their_delay_with_the_progress_on_the_object(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def flaky(retry, **_):
    called('flaky', retry=retry)
    if retry < 2:
        raise kopf.TemporaryError("not yet", delay=1)
    return 'done'
"""
    )
    shelf.create("p1", {"size": 1})
    body = shelf.wait("p1", lambda body: kube.progress(body).get("flaky", {}).get("retries") == 1)
    record = kube.progress(body)["flaky"]
    assert list(record) == ["started", "delayed", "purpose", "retries", "success", "failure", "message"]
    assert record["message"] == "not yet" and record["purpose"] == "create"
    assert record["started"].endswith("+00:00") and record["delayed"] > record["started"]
    body = shelf.wait_until_handled("p1", status={"flaky": "done"})
    assert [call.details["retry"] for call in run.called("flaky")] == [0, 1, 2]
    run.wait_for_log(r"Handler 'flaky' failed temporarily: not yet")
    assert "kopf.zalando.org/touch-dummy" not in body["metadata"]["annotations"]


def test_permanent_errors_are_not_retried(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels')
def broken(**_):
    called('broken')
    raise kopf.PermanentError("no way")
"""
    )
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1")
    assert len(run.called("broken")) == 1
    run.wait_for_log(r"\[ERROR *\].*Handler 'broken' failed permanently: no way")
    run.wait_for_log(r"Creation is processed: 0 succeeded; 1 failed\.")


def test_arbitrary_errors_are_retried_up_to_the_limit_with_tracebacks(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels', retries=2, backoff=0.1)
def broken(retry, **_):
    called('broken', retry=retry)
    raise ValueError("oops")
"""
    )
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1")
    assert [call.details["retry"] for call in run.called("broken")] == [0, 1]
    run.wait_for_log(r"Handler 'broken' failed with an exception and will try again in 0\.1 seconds: oops")
    run.wait_for_log(
        r"Handler 'broken' failed with an exception and will stop now "
        r"\(it would exceed 2 retries on the next attempt\): oops"
    )
    run.wait_for_log(r"^ValueError: oops", count=2)
    run.wait_for_log(r'File ".*handlers\.py", line \d+, in broken')


def test_ignored_errors_count_as_success(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.create('parcels', errors=kopf.ErrorsMode.IGNORED)
def broken(**_):
    raise ValueError("oops")
"""
    )
    shelf.create("p1", {"size": 1})
    shelf.wait_until_handled("p1")
    run.wait_for_log(r"Handler 'broken' failed with an exception and will ignore it: oops")
    run.wait_for_log(r"Creation is processed: 1 succeeded; 0 failed\.")


def test_errors_of_event_handlers_stop_nothing(operator, shelf):
    run = operator(
        PREAMBLE
        + """
@kopf.on.event('parcels')
def broken(name, **_):
    called('broken', name=name)
    raise ValueError("oops")
"""
    )
    shelf.create("p1")
    run.wait_for_call("broken")
    shelf.create("p2")
    run.wait_for_call("broken", count=2)
    run.wait_for_log(r"Handler 'broken' failed with an exception and will ignore it: oops", count=2)


def test_one_handler_runs_per_cycle_by_default_and_all_of_them_if_so_asked(operator, shelf):
    code = (
        PREAMBLE
        + """
@kopf.on.create('parcels')
def first(body, **_):
    called('first', version=body['metadata']['resourceVersion'])

@kopf.on.create('parcels')
def second(body, **_):
    called('second', version=body['metadata']['resourceVersion'])
"""
    )
    default = operator(code)
    shelf.create("p1")
    shelf.wait_until_handled("p1")
    assert default.called("first")[0].details != default.called("second")[0].details
    default.stop()
    at_once = operator("import kopf\nkopf.set_default_lifecycle(kopf.lifecycles.all_at_once)\n" + code)
    shelf.create("p2")
    shelf.wait_until_handled("p2")
    assert at_once.called("first")[0].details == at_once.called("second")[0].details
