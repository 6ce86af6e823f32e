"""Decorated handlers stay the functions that they are: tests of operators call them directly."""

import logging
from collections.abc import Mapping
from typing import Any, assert_type

import kopf

logger = logging.getLogger()


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None: ...


@kopf.on.cleanup()
async def stop(**_: Any) -> None: ...


@kopf.on.login()
def log_in(server: str = "https://x", **_: Any) -> kopf.ConnectionInfo:
    return kopf.ConnectionInfo(server=server)


@kopf.on.probe()
def count(**_: Any) -> int:
    return 1


@kopf.index("pods")
def nodes(name: str, **_: Any) -> Mapping[str, str]:
    return {name: "x"}


@kopf.on.event("pods")
async def watch(name: str, **_: Any) -> str:
    return name


@kopf.on.resume("pods")
@kopf.on.create("pods")
def greet(name: str, patch: kopf.Patch, logger: kopf.Logger, greeting: str = "Hello", **_: Any) -> str:
    return f"{greeting}, {name}"


@kopf.on.update("pods")
@kopf.on.field("pods", field="spec")
async def change(name: str, **_: Any) -> int:
    return len(name)


@kopf.on.delete("pods")
def delete(name: str, **_: Any) -> None: ...


@kopf.daemon("pods")
async def follow(name: str, **_: Any) -> None: ...


@kopf.timer("pods", interval=5)
def tick(name: str, **_: Any) -> int:
    return 1


@kopf.on.validate("pods")
def validate(name: str, warnings: list[str], **_: Any) -> None: ...


@kopf.on.mutate("pods")
async def mutate(name: str, patch: kopf.Patch, **_: Any) -> None: ...


def register() -> None:
    @kopf.subhandler()
    def part(name: str, **_: Any) -> int:
        return len(name)

    assert_type(part(name="x"), int)
    assert_type(kopf.register(part)(name="x"), int)


def test_functions() -> None:
    patch = kopf.Patch()
    assert_type(greet(name="x", patch=patch, logger=logger), str)
    assert_type(greet(name="x", patch=patch, logger=logger, greeting="Hi"), str)
    assert_type(count(), int)
    assert_type(tick(name="x"), int)
    assert_type(nodes(name="x"), Mapping[str, str])
    assert_type(log_in(server="https://y"), kopf.ConnectionInfo)
    configure(settings=kopf.OperatorSettings())
    delete(name="x")
    validate(name="x", warnings=[])


async def test_coroutines() -> None:
    assert_type(await watch(name="x"), str)
    assert_type(await change(name="x"), int)
    await stop()
    await follow(name="x")
    await mutate(name="x", patch=kopf.Patch())
