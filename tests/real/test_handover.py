"""Objects move from Kopf 1.45 to kopf-rs and back in the middle of their handling, without a visible effect.

Both store the same annotations in the same format. A handler that one of them has
finished is not run again by the other; a series of retries continues; a handled object is not
handled again.
"""

import pytest

from tests.support import cluster as kube

CODE = """
from calls import called
import kopf

@kopf.on.create('parcels')
def first(retry, **_):
    called('first', retry=retry)
    return 'one'

@kopf.on.create('parcels')
def second(spec, retry, **_):
    called('second', retry=retry)
    if not spec.get('open'):
        raise kopf.TemporaryError("closed", delay=0.5)
    return 'two'

@kopf.on.create('parcels')
def third_with_such_a_long_name_that_the_key_of_its_annotation_must_be_cut(retry, **_):
    called('third', retry=retry)
    raise kopf.PermanentError("never")

@kopf.on.update('parcels')
def update(diff, **_):
    called('update', diff=list(map(list, diff)))

@kopf.on.field('parcels', field='spec.size')
def resize(old, new, **_):
    called('resize', old=old, new=new)

@kopf.on.resume('parcels')
def resume(**_):
    called('resume')

@kopf.on.delete('parcels')
def delete(retry, spec, **_):
    called('delete', retry=retry)
    if not spec.get('released'):
        raise kopf.TemporaryError("held", delay=0.5)
"""


@pytest.fixture(params=["reference-to-ours", "ours-to-reference"])
def pair(request, reference_python, kopf_python):
    """The first and the second operator."""
    pythons = (reference_python, kopf_python)
    return pythons if request.param == "reference-to-ours" else pythons[::-1]


def test_creation_begun_by_one_is_finished_by_the_other(operator, shelf, pair):
    one = operator(CODE, python=pair[0])
    shelf.create("p1", {"open": False, "size": 1})
    shelf.wait(
        "p1",
        lambda body: (
            kube.progress(body).get("second", {}).get("retries", 0) >= 2
            and len(one.called("third")) == 1
            and body.get("status", {}).get("first")
        ),
    )
    one.kill()
    records = kube.progress(shelf.get("p1"))
    two = operator(CODE, python=pair[1])
    resumed = two.wait_for_call("second")
    assert resumed.details["retry"] == records["second"]["retries"]
    started = kube.progress(
        shelf.wait("p1", lambda body: kube.progress(body)["second"]["retries"] > records["second"]["retries"])
    )["second"]["started"]
    assert started == records["second"]["started"]
    shelf.patch("p1", {"spec": {"open": True}})
    shelf.wait_until_handled("p1", status={"first": "one", "second": "two"})
    assert {call.handler for call in two.calls} <= {"second", "resize"}
    two.wait_for_log(r"Creation is processed: 3 succeeded; 1 failed\.")


def test_object_handled_by_one_is_old_news_for_the_other(operator, shelf, pair):
    one = operator(CODE, python=pair[0])
    shelf.create(
        "p1",
        {"open": True, "size": 1, "float": 1.5, "text": "ключ", "none": [None, {}], "empty": {}},
        annotations={"note": "x"},
        labels={"l": "v"},
    )
    before = shelf.wait_until_handled("p1", status={"first": "one", "second": "two"})
    assert one.stop() == 0
    two = operator(CODE, python=pair[1])
    two.wait_for_log(r"Resuming is processed: 1 succeeded; 0 failed\.")
    assert [call.handler for call in two.calls] == ["resume"]
    assert kube.essence(shelf.get("p1")) == kube.essence(before)
    assert shelf.get("p1")["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], (
        "nothing is written"
    )
    shelf.patch("p1", {"spec": {"size": 2}})
    shelf.wait_until_handled("p1")
    assert two.called("resize")[0].details == {"old": 1, "new": 2}
    assert two.called("update")[0].details == {"diff": [["change", ["spec", "size"], 1, 2]]}


def test_deletion_begun_by_one_is_finished_by_the_other(operator, shelf, pair):
    one = operator(CODE, python=pair[0])
    shelf.create("p1", {"open": True})
    shelf.wait_until_handled("p1")
    shelf.delete("p1")
    shelf.wait("p1", lambda body: kube.progress(body).get("delete", {}).get("retries", 0) >= 1)
    one.kill()
    done = kube.progress(shelf.get("p1"))["delete"]["retries"]
    two = operator(CODE, python=pair[1])
    assert two.wait_for_call("delete").details["retry"] == done
    shelf.patch("p1", {"spec": {"released": True}})
    shelf.wait_until_gone("p1")
    two.wait_for_log(r"Deletion is processed: 1 succeeded; 0 failed\.")


@pytest.mark.contract("api D")
def test_annotations_are_the_same_under_both(operator, shelf, reference_python, kopf_python):
    annotations = []
    for name, python in [("p1", reference_python), ("p2", kopf_python)]:
        run = operator(CODE, python=python)
        shelf.create(
            name,
            {"open": True, "size": 1.25, "z": [1, {"y": None}], "a": 'ключ \u2028 "quoted" \\ 😀'},
            labels={"b": "1", "a": "2"},
            annotations={"note": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        )
        body = shelf.wait_until_handled(name, status={"first": "one", "second": "two"})
        annotations.append(
            {
                key: value
                for key, value in body["metadata"]["annotations"].items()
                if key.startswith(kube.PREFIX)
            }
        )
        shelf.patch(name, {"metadata": {"finalizers": None}})
        run.stop()
    assert annotations[0] == annotations[1]
