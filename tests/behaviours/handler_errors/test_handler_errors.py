"""Any failure of a handler is logged with its name and its object, and the object is still handled
afterwards."""

import logging

import kopf
import pytest

# On purpose: operators are not strict here.
HANDLERS_RAISE = True

pytestmark = pytest.mark.kopf_embedded_only

CHANGES = ["change", "change-async", "event", "event-async"]
BACKGROUND = ["timer", "timer-async", "daemon", "daemon-async"]
OF_RESULTS = ["a clash with the own patch", "a status that is no mapping"]
OF_PATCHES = ["a patch that breaks", "a patch that is not JSON"]
FAILURES = [*OF_RESULTS, *OF_PATCHES, "a cancellation"]
ERRORS = ["a panic", "a frozen error", "an error without text"]


@pytest.fixture
def frozen(cluster):
    cluster.freeze()
    return cluster


@pytest.fixture
def meet(frozen, run, make):
    """Start an operator with an object whose handler fails once."""

    def start(handler, failure):
        running = run()
        make(spec={"handler": handler, "failure": failure, "size": 1})
        running.settle()
        assert running.of(handler) == [failure]
        return running

    return start


def errors(caplog):
    """The logged errors about the object."""
    records = [it for it in caplog.records if it.levelno >= logging.ERROR and it.name == "kopf.objects"]
    assert {it.k8s_ref["name"] for it in records} <= {"one"}
    return records


@pytest.mark.contract("engine 7.6")
@pytest.mark.parametrize("failure", OF_RESULTS)
@pytest.mark.parametrize("handler", CHANGES + BACKGROUND)
def test_results_that_do_not_fit_into_the_patch_are_named(meet, caplog, handler, failure):
    meet(handler, failure)
    assert len(errors(caplog)) == 1 and errors(caplog)[0].exc_info is not None
    text = errors(caplog)[0].getMessage()
    assert f"The result of '{handler}' does not fit into the patch" in text and "'str'" in text


def test_results_of_subhandlers_are_errors_of_their_parents(frozen, meet, handled, caplog):
    failure = "a clash with the own patch"
    running = meet("parent", failure)
    text = errors(caplog)[0].getMessage()
    assert "Handler 'parent' failed" in text and "The result of 'parent/child' does not fit" in text
    frozen.patch("widgets", "one", {"spec": {"failure": None}})
    frozen.advance(100)
    assert running.of("parent") == [failure, None]
    handled()


@pytest.mark.parametrize("failure", OF_PATCHES)
@pytest.mark.parametrize("handler", CHANGES + BACKGROUND)
def test_patches_that_cannot_be_sent_are_logged(meet, caplog, handler, failure):
    meet(handler, failure)
    assert len(errors(caplog)) == 1 and errors(caplog)[0].exc_info is not None


@pytest.mark.parametrize("failure", ERRORS)
@pytest.mark.parametrize("handler", CHANGES + BACKGROUND)
def test_unusual_errors_are_logged_with_their_tracebacks(meet, caplog, handler, failure):
    meet(handler, failure)
    assert len(errors(caplog)) == 1 and errors(caplog)[0].exc_info is not None
    assert f"'{handler}' failed with an exception" in errors(caplog)[0].getMessage()


@pytest.mark.parametrize("failure", ERRORS)
@pytest.mark.parametrize("handler", ["change", "change-async", *BACKGROUND])
def test_handlers_are_called_again_after_unusual_errors(frozen, meet, handler, failure):
    running = meet(handler, failure)
    frozen.advance(9)
    assert running.of(handler) == [failure]
    frozen.advance(1)
    assert running.of(handler) == [failure] * 2


PANICKING_INDEX = """
import kopf

class Panic(BaseException):
    pass

@kopf.index("widgets")
def by_size(**_):
    raise Panic("boo")

@kopf.on.create("widgets")
def create(memo, **_):
    memo.calls.append(("create", None))
"""


def test_a_panic_of_an_index_function_does_not_block_the_start(run, make, caplog):
    make()
    running = run(source=PANICKING_INDEX)
    running.until("create")
    assert "'by_size' failed with an exception" in errors(caplog)[0].getMessage()


PANICKING_FUNCTIONS = """
import kopf

class Panic(BaseException):
    pass

def fail(*_, **__):
    raise Panic("boo")

@kopf.on.startup()
def hurry(settings, **_):
    settings.queueing.error_delays = [10]

@kopf.timer("widgets", id="timer", interval=5, initial_delay=fail)
def tick(**_): ...

@kopf.on.reconcile("widgets", id="filtered", when=fail)
async def filtered(**_): ...

@kopf.on.reconcile(
    "widgets", id="changed", changed=[fail], watches=[kopf.watch("configmaps", labels={"a": "b"}, map=fail)]
)
async def changed(**_): ...

@kopf.on.event("widgets", id="patching")
async def patching(patch, **_):
    patch.fns.append(fail)

kopf.cache("widgets", by={"x": fail})
"""


def test_panics_of_declared_functions_are_logged(cluster, frozen, run, make, caplog):
    running = run(source=PANICKING_FUNCTIONS)
    cluster.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "labels": {"a": "b"}}}
    )
    make()
    running.settle()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    for text in (
        "'timer' cannot compute its initial delay, and ends: boo",
        "A filter of Reconciler 'filtered' has failed: boo",
        "A function in changed= of Reconciler 'changed' has failed: boo",
        "The map of Reconciler 'changed' has failed: boo",
        "in the cache 'widgets' cannot be computed: boo",
        "Panic('boo')",
    ):
        assert len([line for line in lines if text in line]) == 1, (text, lines)
    assert len(lines) == 6


COPYING = """
import kopf

@kopf.on.reconcile("widgets", id="reconciler")
async def reconcile(memo, **_):
    memo.calls.append(("reconciler", None))

@kopf.timer("widgets", id="timer", interval=5, backoff=10)
async def time(memo, **_):
    memo.calls.append(("timer", None))
"""


class Uncopied(kopf.Memo):
    """A memo that cannot be copied at first."""

    def __copy__(self):
        if self.left:
            self.left.pop()
            raise LookupError("This memo cannot be copied.")
        return kopf.Memo(self)


def test_handlers_are_called_again_if_their_arguments_fail(frozen, kopf_operator, make, tmp_path, caplog):
    (tmp_path / "handlers.py").write_text(COPYING)
    calls = []
    memo = Uncopied(calls=calls, left=[1, 2])
    operator = kopf_operator(tmp_path / "handlers.py", memo=memo, strict=False)
    make()
    operator.wait_until_idle()
    assert calls == []
    texts = sorted(record.getMessage() for record in errors(caplog))
    assert len(texts) == 2 and all("This memo cannot be copied." in text for text in texts)
    assert "'reconciler' failed with" in texts[0] and "'timer' failed with" in texts[1]
    frozen.advance(10)
    assert {name for name, _ in calls} == {"reconciler", "timer"}


@pytest.mark.contract("engine 12")
@pytest.mark.parametrize("failure", FAILURES + ERRORS)
@pytest.mark.parametrize("handler", CHANGES)
def test_the_next_state_is_handled_after_a_failure(frozen, meet, handler, failure):
    running = meet(handler, failure)
    frozen.patch("widgets", "one", {"spec": {"failure": None, "size": 2}})
    frozen.advance(10)
    assert running.of(handler)[-1] is None
    assert frozen.get("widgets", "one")["status"][handler] == {"size": 2}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("handler", ["change", "change-async"])
def test_handlers_of_changes_are_called_again_after_a_pause(frozen, meet, handler, failure):
    running = meet(handler, failure)
    frozen.advance(9)
    assert running.of(handler) == [failure]
    frozen.advance(1)
    assert running.of(handler) == [failure] * 2


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("handler", BACKGROUND)
def test_daemons_and_timers_end_with_a_failure_and_hold_nothing(frozen, meet, handler, failure):
    running = meet(handler, failure)
    frozen.advance(100)
    assert running.of(handler) == [failure]
    frozen.delete("widgets", "one")
    running.settle()
    assert frozen.find("widgets", "one") is None


@pytest.mark.parametrize("failure", FAILURES + ERRORS)
@pytest.mark.parametrize("handler", CHANGES + BACKGROUND)
def test_shutdown_does_not_wait_for_a_failed_handler(meet, caplog, handler, failure):
    running = meet(handler, failure)
    running.stop()
    assert "Unprocessed streams" not in caplog.text


class Strange(kopf.AnnotationsDiffBaseStorage):
    """Returns an essence that is not JSON at the first call."""

    found = 0

    def fetch(self, *, body):
        self.found += 1
        return {"spec": object()} if self.found == 1 else super().fetch(body=body)


def test_an_unserializable_essence_is_logged_and_the_object_is_handled_later(frozen, run, make, caplog):
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = Strange()
    running = run(settings=settings)
    make(spec={"handler": "change", "size": 1})
    running.settle()
    assert running.of("change") == []
    assert len(errors(caplog)) == 1 and "not JSON serializable" in errors(caplog)[0].getMessage()
    assert errors(caplog)[0].exc_info is not None
    frozen.advance(10)
    assert running.of("change") == [None]
