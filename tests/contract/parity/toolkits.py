"""Claims about functions for authors: hierarchies, events, runners, private modules."""

import asyncio
import contextvars
import copy
import inspect
import logging
import threading
import types

import kopf
from parity_runner import mro, outcome, outcomes, shown, warned

OWNER = {
    "apiVersion": "v1",
    "kind": "K",
    "metadata": {"name": "own", "uid": "u", "namespace": "ns", "labels": {"a": "b"}},
}


def changed(fn, obj, *args, **kwargs):
    """What becomes of an object, and what the call leads to."""
    obj = copy.deepcopy(obj)
    result = outcome(fn, obj, *args, **kwargs)
    return [result, shown(obj)]


OBJECTS = [
    {},
    {"metadata": {}},
    {"metadata": {"name": "n"}},
    {"metadata": {"generateName": "g-", "namespace": "other", "labels": {"a": "x", "c": "d"}}},
    {"metadata": {"namespace": None, "ownerReferences": [{"uid": "u", "name": "old"}]}},
    {"metadata": {"ownerReferences": [{"uid": "z"}]}},
    [{}, [{"kind": "A"}]],
    {"spec": {"template": {}, "jobs": [{}]}},
]


# contract: api 11
def claim_owner_references():
    return [
        *[changed(kopf.append_owner_reference, obj, OWNER) for obj in OBJECTS],
        *[changed(kopf.append_owner_reference, obj, kopf.Body(OWNER), controller=None) for obj in OBJECTS],
        *[changed(kopf.append_owner_reference, {}, OWNER, block_owner_deletion=False, controller=False)],
        *[changed(kopf.remove_owner_reference, obj, OWNER) for obj in OBJECTS],
        changed(kopf.append_owner_reference, {}, {"kind": "K"}),
        changed(kopf.append_owner_reference, OBJECTS[5], {"kind": "K", "metadata": {"name": "x"}}),
    ]


# contract: api 11
def claim_labels():
    labels = {"a": "1", "b": "2"}
    return [
        *[changed(kopf.label, obj, labels) for obj in OBJECTS],
        *[changed(kopf.label, obj, labels, forced=True) for obj in OBJECTS],
        *[changed(kopf.label, obj, {}) for obj in OBJECTS],
        changed(kopf.label, OBJECTS[7], labels, nested="spec.template"),
        changed(kopf.label, OBJECTS[7], labels, nested=["spec.template", "spec.nope", ("spec",)]),
        changed(kopf.label, {"spec": 1}, labels, nested="spec.template"),
        changed(kopf.label, {}, None),
        changed(kopf.label, {}),
        warned(changed, kopf.label, OBJECTS[3], labels, force=True),
    ]


# contract: api 11
def claim_names():
    return [
        *[changed(kopf.harmonize_naming, obj, "x") for obj in OBJECTS],
        *[changed(kopf.harmonize_naming, obj, "x", strict=True) for obj in OBJECTS],
        *[changed(kopf.harmonize_naming, obj, "x", strict=True, forced=True) for obj in OBJECTS],
        *[changed(kopf.harmonize_naming, obj, "x", forced=True) for obj in OBJECTS],
        changed(kopf.harmonize_naming, {}, None),
        changed(kopf.harmonize_naming, {}),
    ]


# contract: api 11
def claim_namespaces():
    return [
        *[changed(kopf.adjust_namespace, obj, "x") for obj in OBJECTS],
        *[changed(kopf.adjust_namespace, obj, "x", forced=True) for obj in OBJECTS],
        changed(kopf.adjust_namespace, {}, None),
        changed(kopf.adjust_namespace, {}),
    ]


# contract: api 11
def claim_adoption():
    return [
        *[changed(kopf.adopt, obj, OWNER) for obj in OBJECTS],
        *[changed(kopf.adopt, obj, OWNER, strict=True, forced=True) for obj in OBJECTS],
        changed(kopf.adopt, OBJECTS[7], OWNER, nested="spec.template"),
        changed(kopf.adopt, {}, {"metadata": {"name": "x", "labels": None}}),
        changed(kopf.adopt, {}, {"metadata": {"labels": {}}}),
        changed(kopf.adopt, {}, {"kind": "C", "metadata": {"name": "c", "uid": "q"}}),
        changed(kopf.adopt, {}),
    ]


# contract: api 11
def claim_things_that_cannot_be_adopted():
    things = [1, None, types.MappingProxyType({}), kopf.Body({}), [{}, 1], (x for x in [{}])]
    return [outcome(kopf.adopt, thing, OWNER) for thing in things]


def within(call, **overrides):
    from kopf._core.actions.execution import cause_var
    from kopf._core.actions.invocation import context
    from kopf._core.intents.causes import ChangingCause

    fields = dict(
        logger=logging.getLogger("x"),
        indices={},
        memo=kopf.Memo(),
        resource=kopf.Resource("", "v1", "x"),
        patch=kopf.Patch(),
        body=kopf.Body(OWNER),
        initial=False,
        reason=kopf.Reason.CREATE,
    )
    with context([(cause_var, ChangingCause(**{**fields, **overrides}))]):
        return call()


# contract: api 11
def claim_the_implicit_owner():
    obj: dict = {}
    toolkits = [kopf.adopt, kopf.label, kopf.harmonize_naming]
    answers = [within(lambda fn=fn: changed(fn, {})) for fn in toolkits]
    answers += [within(lambda: changed(kopf.append_owner_reference, {}))]
    thread = threading.Thread

    def in_thread():
        run = contextvars.copy_context().run
        worker = thread(target=run, args=(kopf.adopt, obj))
        worker.start()
        worker.join()

    within(in_thread)
    return [*answers, obj]


# --- Events.


def posted(call, **posting):
    from kopf._core.actions.invocation import context
    from kopf._core.engines.posting import event_queue_loop_var, event_queue_var, settings_var

    settings = kopf.OperatorSettings()
    for name, value in posting.items():
        setattr(settings.posting, name, value)

    async def main():
        queue: asyncio.Queue = asyncio.Queue()
        values = [
            (settings_var, settings),
            (event_queue_var, queue),
            (event_queue_loop_var, asyncio.get_running_loop()),
        ]
        with context(values):
            result = outcome(call)
        return [result, *[shown(tuple(queue.get_nowait())) for _ in range(queue.qsize())]]

    return asyncio.run(main())


def failing(**kwargs):
    try:
        raise ValueError("oops")
    except ValueError:
        kopf.exception(OWNER, **kwargs)


EVENTS = [
    lambda: kopf.event(OWNER, type="T", reason="R"),
    lambda: kopf.event([OWNER, [kopf.Body(OWNER)]], type="T", reason="R", message="m", backoffs=1),
    lambda: kopf.event(None, type="T", reason="R"),
    lambda: kopf.info(OWNER, reason="R", message="m"),
    lambda: kopf.warn(OWNER, reason="R", backoffs=[1, 2]),
    lambda: kopf.exception(OWNER),
    lambda: kopf.exception(OWNER, reason="R", message="m", exc=ValueError("x")),
    lambda: kopf.exception(OWNER, exc=ValueError()),
    failing,
    lambda: failing(message="m"),
]


# contract: api 1.4
def claim_events():
    return [posted(event) for event in EVENTS]


# contract: api 1.4
def claim_gates_of_events():
    gates = [{"enabled": False}, {"level": logging.WARNING}, {"level": logging.ERROR}, {"level": 100}]
    return [[len(posted(event, **gate)) - 1 for event in EVENTS] for gate in gates]


# contract: api 1.4
def claim_events_outside_of_handlers():
    return [outcome(event).split(" at ")[0] for event in EVENTS]


# contract: api 1.4, api 3.10
def claim_events_of_logs():
    def log(**extra):
        settings = kopf.OperatorSettings()
        settings.posting.loggers = True
        logger = kopf.ObjectLogger(body=kopf.Body(OWNER), settings=settings)
        for level in [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL]:
            logger.log(level, "m %s", level, extra=extra)

    def local():
        kopf.LocalObjectLogger(body=kopf.Body(OWNER), settings=kopf.OperatorSettings()).error("m")

    root = logging.getLogger("kopf.objects")
    root.setLevel(logging.DEBUG)
    try:
        return [posted(log), posted(lambda: log(k8s_skip=True)), posted(local)]
    finally:
        root.setLevel(logging.NOTSET)


# --- Runners, private modules.


# contract: api 13
def claim_runners():
    from kopf.testing import KopfRunner

    runner = KopfRunner(["run", "-A"], env={"x": "y"}, timeout=60, reraise=False)
    names = ["args", "kwargs", "reraise", "timeout", "registry", "settings"]
    return [{name: shown(getattr(runner, name)) for name in names}, mro(KopfRunner)]


def ends_of_runs(*runs):
    from kopf.testing import KopfRunner

    answers = []
    for args in runs:
        with KopfRunner(args, reraise=False, timeout=60) as runner:
            pass
        answers.append([runner.exit_code, shown(runner.exception), type(runner.exc_info).__name__])

        def raising(args=args):
            with KopfRunner(args, timeout=60):
                pass

        try:
            raising()
        except BaseException as e:
            answers.append(type(e).__name__)
    return answers


# contract: api 5.3, api 13
def claim_runs_that_end():
    return ends_of_runs(["run", "--nope"], ["--version", "x"])


def claim_runs_of_missing_files():
    return ends_of_runs(["run", "/nope.py"])


# contract: api 7.3, api 14
def claim_private_factories():
    from kopf._cogs.structs.credentials import Vault
    from kopf._core.engines.indexing import OperatorIndexers
    from kopf._core.engines.posting import K8sPoster, enqueue
    from kopf._core.intents.registries import get_callable_id
    from kopf._core.reactor.inventory import ResourceMemories

    return [
        mro(K8sPoster),
        [issubclass(K8sPoster, logging.Handler), callable(K8sPoster.filter)],
        outcome(lambda: Vault({"x": kopf.ConnectionInfo(server="s")}) is None),
        [len(OperatorIndexers()), list(OperatorIndexers())],
        outcome(lambda: ResourceMemories() is None),
        list(inspect.signature(enqueue).parameters),
        get_callable_id(posted),
    ]


# contract: api 14
def claim_posters_can_be_patched():
    from kopf._core.engines.posting import K8sPoster

    seen = []
    original = K8sPoster.filter
    K8sPoster.filter = lambda self, record: seen.append(record.getMessage()) or False
    try:
        kopf.get_default_registry()
        kopf.ObjectLogger(body=kopf.Body(OWNER), settings=kopf.OperatorSettings()).warning("seen")
    finally:
        K8sPoster.filter = original
    return seen


# contract: api 3.1, api 14
def claim_causes_in_tests_of_users():
    from kopf._core.intents import causes

    classes = [
        "ActivityCause",
        "WatchingCause",
        "ChangingCause",
        "IndexingCause",
        "SpawningCause",
        "WebhookCause",
    ]
    answers = [
        list(inspect.signature(getattr(causes, name)).parameters) for name in [*classes, "DaemonCause"]
    ]
    return [*answers, sorted(within(lambda: cause_kwargs())), [str(r) for r in causes.HANDLER_REASONS]]


# contract: api 14
def claim_causes_are_values():
    from kopf._core.intents.causes import ActivityCause

    def cause(memo):
        return ActivityCause(logger=None, indices={}, memo=memo, activity="startup", settings=None)

    return [cause(1) == cause(1), cause(1) == cause(2), repr(cause(1)), outcome(hash, cause(1))]


def cause_kwargs():
    from kopf._core.actions.execution import cause_var

    return cause_var.get().kwargs


# contract: api 3.4, api 14
def claim_diffs_of_private_modules():
    from kopf._cogs.structs import dicts, diffs

    one = {"a": 1, "b": {"c": [1]}, "z": None}
    two = {"a": 2, "b": {"c": [1, 2], "d": {}}}
    found = diffs.diff(one, two)
    cases = [("b",), ("b", "c"), ("a",), (), ("nope",), ("a", "x")]
    return [
        sorted(map(shown, found)),
        [sorted(map(shown, diffs.reduce(found, case))) for case in cases],
        outcomes(
            lambda: diffs.diff(None, one),
            lambda: diffs.diff(one, None),
            lambda: diffs.diff(None, None),
            lambda: diffs.diff(1, 1.0),
            lambda: diffs.diff(1, True),
            lambda: diffs.diff({}, 1),
        ),
        outcomes(
            lambda: dicts.parse_field("a.b"),
            lambda: dicts.parse_field(["a"]),
            lambda: dicts.parse_field(None),
            lambda: dicts.parse_field(1),
            lambda: dicts.resolve(one, "b.c"),
            lambda: dicts.resolve(one, "b.nope"),
            lambda: dicts.resolve(one, "b.nope", 5),
            lambda: dicts.resolve(one, "a.x"),
            lambda: dicts.resolve(None, "a", None),
            lambda: list(dicts.walk([one, [two, None]])) == [one, two],
        ),
    ]


# contract: api 6.1
def claim_namespace_patterns():
    import re

    from kopf._cogs.structs.references import match_namespace

    patterns = ["a", "a*", "!a", "a*,!ab", "!a*,ab", "*,!a", "a?", "[ab]", "a, b", "", re.compile("a.*")]
    return [[match_namespace(name, pattern) for name in ["a", "ab", "b"]] for pattern in patterns]


# contract: api 3.1, api 12
def claim_types_of_functions():
    from kopf._core.intents import callbacks

    kinds = ["Activity", "Changing", "Daemon", "Delay", "Indexing", "MetaFilter", "Timer", "Watching"]
    kinds += ["Webhook", "WhenFilter"]
    return {
        kind: sorted(
            [parameter.name, parameter.kind.name, parameter.default is not parameter.empty]
            for parameter in inspect.signature(getattr(callbacks, f"{kind}Fn").__call__).parameters.values()
            if parameter.name not in ("api", "conditions")  # they are not in Kopf
        )
        for kind in kinds
    }


# contract: api 2.8
def claim_detection_of_coroutines():
    import functools

    from kopf._core.actions.invocation import is_async_fn

    async def one(**_): ...

    def two(**_): ...

    class Three:
        async def __call__(self, **_): ...

    wrapped = functools.wraps(one)(lambda **_: None)
    return [
        is_async_fn(fn)
        for fn in [one, two, functools.partial(one), wrapped, functools.partial(wrapped), Three()]
    ]
