"""What an operator is doing when it dies. It owns the handlers and the acts; it must not know when anybody
dies. All handlers are coroutines: the threads of the dead would outlive them, in real time.
"""

from typing import Any

import kopf
from crash_runs import GROUP, KIND, Lives, Scenario
from kopf.testing import Cluster

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
    """Nothing happens, for as long as after each act."""


def final(value: int, *handlers: str, status: Any = None, name: str = "one") -> Any:
    """These handlers have seen this state in the end, and have left that."""

    def check(lives: Lives) -> list[str]:
        wrong = [
            f"{handler} has seen {seen} in the end"
            for handler in handlers
            if (seen := lives.seen(handler, name)) != {"value": value}
        ]
        there = lives.cluster.get(KIND, name).get("status") or {}
        return wrong + [
            f"{key}: {there.get(key)}" for key, it in (status or {}).items() if there.get(key) != it
        ]

    return check


def is_gone(*handlers: str) -> Any:
    """These handlers were called; unless it has gone before any operator has noticed it."""

    def check(lives: Lives) -> list[str]:
        bodies = lives.cluster.list(KIND)
        called = {it.handler for it in lives.calls}
        wrong = [f"{it} was not called" for it in handlers if it not in called and called]
        return wrong + [f"there is {it['metadata']}" for it in bodies]

    return check


def two(lives: Lives) -> None:
    @kopf.on.create(KIND, id="first")
    @kopf.on.update(KIND, id="first")
    async def first(spec: Any, patch: Any, **kwargs: Any) -> None:
        with lives.call("first", kwargs):
            patch.status["first"] = spec["value"]

    @kopf.on.create(KIND, id="second")
    @kopf.on.update(KIND, id="second")
    async def second(spec: Any, **kwargs: Any) -> Any:
        with lives.call("second", kwargs):
            return {"value": spec["value"]}


TWO = frozenset({"first", "second"})


def left(value: int) -> Any:
    return {"first": value, "second": {"value": value}}


scenario("creation", two, [create()], counted=TWO, final=final(1, *TWO, status=left(1)))
scenario("update", two, [create(), change(2), change(3)], counted=TWO, final=final(3, *TWO, status=left(3)))


def retrying(lives: Lives) -> None:
    two(lives)

    @kopf.on.create(KIND, id="third")
    @kopf.on.update(KIND, id="third")
    async def third(retry: int, **kwargs: Any) -> None:
        with lives.call("third", {**kwargs, "retry": retry}):
            if retry < 2:
                raise kopf.TemporaryError("not yet", delay=30)


THREE = TWO | {"third"}
scenario("retries", retrying, [create(), change(2)], counted=THREE, final=final(2, *THREE, status=left(2)))
scenario(
    "a change between two handlers",
    retrying,
    [create(), change(2), wait, wait, wait],
    patience=40,
    counted=THREE,
    final=final(2, *THREE, status=left(2)),
)


def deletion(lives: Lives) -> None:
    two(lives)

    @kopf.on.delete(KIND, id="farewell")
    async def farewell(retry: int, **kwargs: Any) -> None:
        with lives.call("farewell", {**kwargs, "retry": retry}):
            if not retry:
                raise kopf.TemporaryError("not yet", delay=30)

    @kopf.on.delete(KIND, id="goodbye")
    async def goodbye(**kwargs: Any) -> None:
        with lives.call("goodbye", kwargs):
            pass


scenario(
    "deletion",
    deletion,
    [create(), delete()],
    counted=TWO | {"farewell", "goodbye"},
    final=is_gone("farewell", "goodbye"),
)


def subhandlers(lives: Lives) -> None:
    @kopf.on.create(KIND, id="parent")
    @kopf.on.update(KIND, id="parent")
    async def parent(**kwargs: Any) -> None:
        with lives.call("parent", kwargs):
            for name in ("red", "green"):

                @kopf.subhandler(id=name)
                async def child(retry: int, _name: str = name, **more: Any) -> Any:
                    with lives.call(_name, {**more, "retry": retry}):
                        if _name == "red" and not retry:
                            raise kopf.TemporaryError("not yet", delay=30)
                        return {"value": more["new"]["spec"]["value"]}


CHILDREN = frozenset({"red", "green"})
scenario("sub-handlers", subhandlers, [create(), change(2)], counted=CHILDREN, final=final(2, *CHILDREN))


def daemons(lives: Lives) -> None:
    two(lives)

    @kopf.daemon(KIND, id="companion", labels={"manned": "yes"}, cancellation_timeout=10)
    async def companion(name: str, stopped: Any, **_: Any) -> None:
        with lives.daemon(name):
            await stopped.wait()


def manned(*names: str) -> Any:
    def check(lives: Lives) -> list[str]:
        wanted = {f"{name} in life {lives.life}": 1 for name in names}
        there = {name: count for name, count in lives.daemons.items() if count}
        return [] if there == wanted else [f"daemons: {there}, not {wanted}"]

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


def timers(lives: Lives) -> None:
    two(lives)

    @kopf.timer(KIND, id="steady", interval=60)
    async def steady(status: Any, patch: Any, **kwargs: Any) -> None:
        with lives.call("steady", kwargs):
            patch.status["rounds"] = status.get("rounds", 0) + 1


def has_rounds(lives: Lives) -> list[str]:
    rounds = (lives.cluster.get(KIND, "one").get("status") or {}).get("rounds", 0)
    return [] if rounds >= 2 else [f"{rounds} rounds"]


scenario("a timer", timers, [create(), change(2)], counted=TWO, final=has_rounds)
scenario("the end of a timer", timers, [create(), delete()], counted=TWO, final=is_gone("steady"))


def indexed(lives: Lives) -> None:
    two(lives)

    @kopf.index(KIND, id="known")
    async def known(name: str, spec: Any, **_: Any) -> Any:
        return {name: spec["value"]}

    @kopf.on.event(KIND, id="peek")
    async def peek(known: Any, **_: Any) -> None:
        lives.index = {"life": lives.life, "entries": {name: list(values) for name, values in known.items()}}


def indexes(**wanted: int) -> Any:
    def check(lives: Lives) -> list[str]:
        expected = {"life": lives.life, "entries": {name: [value] for name, value in wanted.items()}}
        return [] if lives.index == expected else [f"the index has {lives.index}, not {expected}"]

    return check


scenario(
    "an index",
    indexed,
    [create(), create("two"), change(2), delete("two")],
    counted=TWO,
    final=indexes(one=2),
)


def resuming(lives: Lives) -> None:
    two(lives)

    @kopf.on.resume(KIND, id="again")
    async def again(spec: Any, patch: Any, **kwargs: Any) -> None:
        with lives.call("again", kwargs):
            patch.status["again"] = spec["value"]


def handled(cluster: Cluster) -> None:
    """Objects as another operator has left them; one has changed since."""
    for name in ("one", "two"):
        create(name, 1)(cluster)
        last = '{"spec":{"value":1}}\n'
        annotations = {"kopf.zalando.org/last-handled-configuration": last}
        cluster.patch(KIND, name, {"metadata": {"annotations": annotations}, "status": {"first": 1}})
    change(2, "two")(cluster)


def resumed(lives: Lives) -> list[str]:
    called = {(it.handler, it.name, it.new) for it in lives.calls}
    wanted = [("again", "one", '{"value": 1}'), ("again", "two", '{"value": 2}')]
    wanted += [("first", "two", '{"value": 2}'), ("second", "two", '{"value": 2}')]
    wrong = [f"{it} was not called" for it in wanted if it not in called]
    return wrong + [f"{it} was called" for it in called if it[:2] == ("first", "one")]


scenario("resuming", resuming, [wait], first=handled, counted=TWO, final=resumed, inflight=2)


# --- Handlers that change their own object, and progress in the status, which is written on its own.


def stamping(lives: Lives) -> None:
    @kopf.on.create(KIND, id="stamp")
    @kopf.on.update(KIND, id="stamp")
    async def stamp(spec: Any, patch: Any, **kwargs: Any) -> None:
        with lives.call("stamp", kwargs):
            patch.metadata.labels["stamp"] = f"v{len(lives.calls)}"

    retrying(lives)


def without_own_updates(check: Any) -> Any:
    """No handler is called for what handlers have written."""

    def checked(lives: Lives) -> list[str]:
        own = [it for it in lives.calls if it.reason == "update" and it.old == it.new]
        return [*check(lives), *(f"{it} is no change of others" for it in own)]

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
    counted=TWO | {"farewell", "goodbye"},
    final=is_gone("farewell", "goodbye"),
    settings=progress_in_status,
    status=True,
)
