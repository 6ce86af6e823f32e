"""The scenarios of the crash tests: handlers and changes of objects, independent of the points of crashes.
All handlers are coroutines: threads of a crashed operator would continue in real time.
"""

from typing import Any

import kopf
from kopf.testing import Cluster

from tests.faults.crash_runs import GROUP, KIND, CrashRun, Scenario

SCENARIOS: dict[str, Scenario] = {}


def scenario(title: str, declare: Any, acts: list[Any], **options: Any) -> None:
    SCENARIOS[title] = Scenario(title, declare, acts, **options)


def create(name: str = "one", value: int = 1, **meta: Any) -> Any:
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Crate", "metadata": {"name": name, **meta}}
    return lambda cluster: cluster.create({**body, "spec": {"value": value}})


def change(value: int, name: str = "one") -> Any:
    return lambda cluster: cluster.patch(KIND, name, {"spec": {"value": value}})


def label(name: str, **labels: str | None) -> Any:
    return lambda cluster: cluster.patch(KIND, name, {"metadata": {"labels": labels}})


def delete(name: str = "one") -> Any:
    return lambda cluster: cluster.delete(KIND, name)


def wait(cluster: Cluster) -> None:
    """No change: only the pause after an act."""


def final(value: int, *handlers: str, status: Any = None, name: str = "one") -> Any:
    """These handlers were last called with this value, and the status is as given."""

    def check(crash_run: CrashRun) -> list[str]:
        wrong = [
            f"{handler} has seen {seen} in the end"
            for handler in handlers
            if (seen := crash_run.seen(handler, name)) != {"value": value}
        ]
        there = crash_run.cluster.get(KIND, name).get("status") or {}
        return wrong + [
            f"{key}: {there.get(key)}" for key, it in (status or {}).items() if there.get(key) != it
        ]

    return check


def is_gone(*handlers: str) -> Any:
    """These handlers were called, unless the object was deleted before any operator has received it."""

    def check(crash_run: CrashRun) -> list[str]:
        bodies = crash_run.cluster.list(KIND)
        called = {it.handler for it in crash_run.calls}
        wrong = [f"{it} was not called" for it in handlers if it not in called and called]
        return wrong + [f"there is {it['metadata']}" for it in bodies]

    return check


def two(crash_run: CrashRun) -> None:
    @kopf.on.create(KIND, id="first")
    @kopf.on.update(KIND, id="first")
    async def first(spec: Any, patch: Any, **kwargs: Any) -> None:
        with crash_run.call("first", kwargs):
            patch.status["first"] = spec["value"]

    @kopf.on.create(KIND, id="second")
    @kopf.on.update(KIND, id="second")
    async def second(spec: Any, **kwargs: Any) -> Any:
        with crash_run.call("second", kwargs):
            return {"value": spec["value"]}


TWO = frozenset({"first", "second"})


def left(value: int) -> Any:
    return {"first": value, "second": {"value": value}}


scenario("creation", two, [create()], counted=TWO, final=final(1, *TWO, status=left(1)))
scenario("update", two, [create(), change(2), change(3)], counted=TWO, final=final(3, *TWO, status=left(3)))


def retrying(crash_run: CrashRun) -> None:
    two(crash_run)

    @kopf.on.create(KIND, id="third")
    @kopf.on.update(KIND, id="third")
    async def third(retry: int, **kwargs: Any) -> None:
        with crash_run.call("third", {**kwargs, "retry": retry}):
            if retry < 2:
                raise kopf.TemporaryError("not yet", delay=30)


THREE = TWO | {"third"}
scenario("retries", retrying, [create(), change(2)], counted=THREE, final=final(2, *THREE, status=left(2)))
scenario(
    "a change between two handlers",
    retrying,
    [create(), change(2), wait, wait, wait],
    pause=40,
    counted=THREE,
    final=final(2, *THREE, status=left(2)),
)


def deletion(crash_run: CrashRun) -> None:
    two(crash_run)

    @kopf.on.delete(KIND, id="removal")
    async def removal(retry: int, **kwargs: Any) -> None:
        with crash_run.call("removal", {**kwargs, "retry": retry}):
            if not retry:
                raise kopf.TemporaryError("not yet", delay=30)

    @kopf.on.delete(KIND, id="goodbye")
    async def goodbye(**kwargs: Any) -> None:
        with crash_run.call("goodbye", kwargs):
            pass


scenario(
    "deletion",
    deletion,
    [create(), delete()],
    counted=TWO | {"removal", "goodbye"},
    final=is_gone("removal", "goodbye"),
)


def subhandlers(crash_run: CrashRun) -> None:
    @kopf.on.create(KIND, id="parent")
    @kopf.on.update(KIND, id="parent")
    async def parent(**kwargs: Any) -> None:
        with crash_run.call("parent", kwargs):
            for name in ("red", "green"):

                @kopf.subhandler(id=name)
                async def child(retry: int, _name: str = name, **more: Any) -> Any:
                    with crash_run.call(_name, {**more, "retry": retry}):
                        if _name == "red" and not retry:
                            raise kopf.TemporaryError("not yet", delay=30)
                        return {"value": more["new"]["spec"]["value"]}


CHILDREN = frozenset({"red", "green"})
scenario("sub-handlers", subhandlers, [create(), change(2)], counted=CHILDREN, final=final(2, *CHILDREN))


def daemons(crash_run: CrashRun) -> None:
    two(crash_run)

    @kopf.daemon(KIND, id="companion", labels={"manned": "yes"}, cancellation_timeout=10)
    async def companion(name: str, stopped: Any, **_: Any) -> None:
        with crash_run.daemon(name):
            await stopped.wait()


def manned(*names: str) -> Any:
    def check(crash_run: CrashRun) -> list[str]:
        expected = {f"{name} in operator {crash_run.operator_number}": 1 for name in names}
        there = {name: count for name, count in crash_run.daemons.items() if count}
        return [] if there == expected else [f"daemons: {there}, not {expected}"]

    return check


MANNED = {"labels": {"manned": "yes"}}
scenario("a daemon", daemons, [create(**MANNED)], counted=TWO, final=manned("one"))
scenario("the end of a daemon", daemons, [create(**MANNED), delete()], counted=TWO, final=is_gone())
scenario(
    "a daemon whose object changes sides",
    daemons,
    [create(**MANNED), create("two"), label("one", manned="no"), label("two", manned="yes")],
    counted=TWO,
    inflight=1,
    final=manned("two"),
)


def timers(crash_run: CrashRun) -> None:
    two(crash_run)

    @kopf.timer(KIND, id="steady", interval=60)
    async def steady(status: Any, patch: Any, **kwargs: Any) -> None:
        with crash_run.call("steady", kwargs):
            patch.status["rounds"] = status.get("rounds", 0) + 1


def has_rounds(crash_run: CrashRun) -> list[str]:
    rounds = (crash_run.cluster.get(KIND, "one").get("status") or {}).get("rounds", 0)
    return [] if rounds >= 2 else [f"{rounds} rounds"]


scenario("a timer", timers, [create(), change(2)], counted=TWO, final=has_rounds)
scenario("the end of a timer", timers, [create(), delete()], counted=TWO, final=is_gone("steady"))


def indexed(crash_run: CrashRun) -> None:
    two(crash_run)

    @kopf.index(KIND, id="known")
    async def known(name: str, spec: Any, **_: Any) -> Any:
        return {name: spec["value"]}

    @kopf.on.event(KIND, id="peek")
    async def peek(known: Any, **_: Any) -> None:
        crash_run.index = {
            "operator": crash_run.operator_number,
            "entries": {name: list(values) for name, values in known.items()},
        }


def indexes(**entries: int) -> Any:
    def check(crash_run: CrashRun) -> list[str]:
        expected = {
            "operator": crash_run.operator_number,
            "entries": {name: [value] for name, value in entries.items()},
        }
        return [] if crash_run.index == expected else [f"the index has {crash_run.index}, not {expected}"]

    return check


scenario(
    "an index",
    indexed,
    [create(), create("two"), change(2), delete("two")],
    counted=TWO,
    final=indexes(one=2),
)


def resuming(crash_run: CrashRun) -> None:
    two(crash_run)

    @kopf.on.resume(KIND, id="again")
    async def again(spec: Any, patch: Any, **kwargs: Any) -> None:
        with crash_run.call("again", kwargs):
            patch.status["again"] = spec["value"]


def handled(cluster: Cluster) -> None:
    """Objects handled by a previous operator; one has changed since."""
    for name in ("one", "two"):
        create(name, 1)(cluster)
        last = '{"spec":{"value":1}}\n'
        annotations = {"kopf.zalando.org/last-handled-configuration": last}
        cluster.patch(KIND, name, {"metadata": {"annotations": annotations}, "status": {"first": 1}})
    change(2, "two")(cluster)


def resumed(crash_run: CrashRun) -> list[str]:
    called = {(it.handler, it.name, it.new) for it in crash_run.calls}
    expected = [("again", "one", '{"value": 1}'), ("again", "two", '{"value": 2}')]
    expected += [("first", "two", '{"value": 2}'), ("second", "two", '{"value": 2}')]
    wrong = [f"{it} was not called" for it in expected if it not in called]
    return wrong + [f"{it} was called" for it in called if it[:2] == ("first", "one")]


scenario("resuming", resuming, [wait], first=handled, counted=TWO, final=resumed, inflight=2)


# --- Handlers that change their object, and progress in the status, which needs a separate request.


def stamping(crash_run: CrashRun) -> None:
    @kopf.on.create(KIND, id="stamp")
    @kopf.on.update(KIND, id="stamp")
    async def stamp(spec: Any, patch: Any, **kwargs: Any) -> None:
        with crash_run.call("stamp", kwargs):
            patch.metadata.labels["stamp"] = f"v{len(crash_run.calls)}"

    retrying(crash_run)


def without_own_updates(check: Any) -> Any:
    """No handler is called for changes by handlers."""

    def checked(crash_run: CrashRun) -> list[str]:
        own = [it for it in crash_run.calls if it.reason == "update" and it.old == it.new]
        return [*check(crash_run), *(f"{it} is not a change by another client" for it in own)]

    return checked


FOUR = THREE | {"stamp"}
scenario(
    "handlers that change their object",
    stamping,
    [create(), change(2)],
    counted=FOUR,
    final=without_own_updates(final(2, *FOUR, status=left(2))),
)


def progress_in_status(settings: kopf.OperatorSettings) -> None:
    settings.persistence.progress_storage = kopf.StatusProgressStorage(field="status.progress")


def without_waiting(settings: kopf.OperatorSettings) -> None:
    progress_in_status(settings)
    settings.persistence.consistency_timeout = 0


for title, settings in [
    ("progress in the status", progress_in_status),
    ("progress in the status, without waiting for own writes", without_waiting),
]:
    scenario(
        title,
        stamping,
        [create(), change(2)],
        counted=FOUR,
        final=without_own_updates(final(2, *FOUR, status=left(2))),
        settings=settings,
        status=True,
    )
scenario(
    "a deletion with progress in the status",
    deletion,
    [create(), delete()],
    counted=TWO | {"removal", "goodbye"},
    final=is_gone("removal", "goodbye"),
    settings=progress_in_status,
    status=True,
)


def reconciled(crash_run: CrashRun) -> None:
    @kopf.on.reconcile(KIND, id="reconciler", deletion=True)
    async def reconciler(spec: Any, patch: Any, deleting: bool, **kwargs: Any) -> None:
        with crash_run.call("deleting" if deleting else "sync", {**kwargs, "new": {"spec": dict(spec)}}):
            if not deleting:
                patch.status["sync"] = spec["value"]


# Section 1.14, scenario 17.
scenario(
    "a reconciler", reconciled, [create(), change(2), change(3)], final=final(3, "sync", status={"sync": 3})
)
scenario("a deletion with a reconciler", reconciled, [create(), delete()], final=is_gone("deleting"))


def applying(crash_run: CrashRun) -> None:
    """A reconciler with children of two kinds: one is cached as a whole, and pruned; only the metadata of the
    other one is watched."""
    maps = kopf.cache("configmaps", id="maps", by={"value": "data.value"})

    @kopf.on.reconcile(KIND, id="reconciler", owns=["configmaps", "secrets"], deletion=True)
    async def reconciler(
        name: str, namespace: str, spec: Any, conditions: Any, deleting: bool, **kwargs: Any
    ) -> None:
        given = {**kwargs, "name": name, "new": {"spec": dict(spec)}}
        with crash_run.call("deleting" if deleting else "sync", given):
            if deleting:
                return
            value = spec["value"]
            children = [child_of(name, number, value) for number in range(1 + value % 2)]
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
            try:
                await kopf.apply(children, prune=True, conflict="force")
                await kopf.apply({**secret, "stringData": {"value": str(value)}}, conflict="force")
            except (kopf.ApplyFailed, kopf.ApiError) as error:
                raise kopf.TemporaryError(f"a fault: {error}", delay=1) from None
            # The responses are readable at once, also after lost ones.
            known = maps.get(f"{name}-0", namespace)
            assert known is not None and known["data"] == {"value": str(value)}, known
            conditions.set("Applied", True, reason="Applied", message=str(value))


def child_of(name: str, number: int, value: int) -> dict[str, Any]:
    metadata = {"name": f"{name}-{number}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": str(value)}}


def has_children(value: int | None, name: str = "one") -> Any:
    """The children are those of this value; without a value, there are none, and no owner."""

    def check(crash_run: CrashRun) -> list[str]:
        cluster = crash_run.cluster
        maps = {it["metadata"]["name"]: it["data"]["value"] for it in cluster.list("configmaps")}
        count = 0 if value is None else 1 + value % 2
        wrong = [] if maps == {f"{name}-{it}": str(value) for it in range(count)} else [f"children: {maps}"]
        secrets = [it["metadata"]["name"] for it in cluster.list("secrets")]
        if secrets != [name] * (value is not None):
            wrong.append(f"secrets: {secrets}")
        for body in cluster.list(KIND):
            conditions = (body.get("status") or {}).get("conditions") or []
            if value is None or [it["message"] for it in conditions] != [str(value)]:
                wrong.append(f"{body['metadata']} has {conditions}")
        return wrong

    return check


def spoil(cluster: Cluster) -> None:
    """Another client changes one child, and deletes the other one."""
    cluster.patch("configmaps", "one-0", {"data": {"value": "spoilt"}})
    cluster.delete("secrets", "one")


def without_retries(settings: kopf.OperatorSettings) -> None:
    """Calls fail at once, and are repeated: a call that waits is never idle."""
    settings.networking.error_backoffs = []


CHILDREN: Any = {"children": ("configmaps", "secrets"), "status": True, "settings": without_retries}
scenario(
    "children of a reconciler",
    applying,
    [create(), change(2), spoil, change(3)],
    final=has_children(3),
    **CHILDREN,
)
scenario("a deletion with children", applying, [create(), delete()], final=has_children(None), **CHILDREN)
