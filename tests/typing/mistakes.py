"""Mistakes that type checkers must find: an unused ignore comment is an error."""

from typing import Any

import kopf


@kopf.on.create("x")  # type: ignore[type-var]
def without_the_rest(spec: kopf.Spec) -> None: ...


@kopf.on.create("x", errors="permanent")  # type: ignore[arg-type]
def with_a_string_for_errors(**_: Any) -> None: ...


@kopf.on.create("x", old=1)  # type: ignore[call-arg]
def with_an_option_of_others(**_: Any) -> None: ...


@kopf.on.field("x")  # type: ignore[call-arg]
def without_a_field(**_: Any) -> None: ...


@kopf.on.create("x")  # type: ignore[type-var]
def with_a_wrong_type(spec: int, **_: Any) -> None: ...


@kopf.on.startup()  # type: ignore[type-var]
def with_a_wrong_type_of_settings(settings: kopf.Memo, **_: Any) -> None: ...


@kopf.on.event("x")  # type: ignore[type-var]
async def with_a_positional_argument(wrong: str, /, **_: Any) -> None: ...


@kopf.index("x")  # type: ignore[type-var]
def with_a_wrong_name(name: int, **_: Any) -> None: ...


@kopf.on.validate("x")  # type: ignore[type-var]
def with_a_result(**_: Any) -> int:
    return 1


@kopf.daemon("x")  # type: ignore[type-var]
async def with_a_wrong_flag(stopped: int, **_: Any) -> None: ...


@kopf.timer("x", interval=1)  # type: ignore[type-var]
async def with_a_wrong_patch(patch: str, **_: Any) -> None: ...


@kopf.subhandler()  # type: ignore[type-var]
async def with_a_wrong_diff(diff: str, **_: Any) -> None: ...


def configure(settings: kopf.OperatorSettings) -> None:
    settings.posting.enable = False  # type: ignore[attr-defined]
    settings.nope = 1  # type: ignore[attr-defined]
    settings.posting.enabled = "no"  # type: ignore[assignment]


def change(body: kopf.Body, spec: kopf.Spec) -> None:
    body["x"] = 1  # type: ignore[index]
    spec.x  # type: ignore[attr-defined]  # noqa: B018
    kopf.ConnectionInfo("https://x")  # type: ignore[misc]
    kopf.nope  # type: ignore[attr-defined]  # noqa: B018
