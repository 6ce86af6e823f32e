"""A scenario: the folder of an operator, with the steps of a test and the options of the comparison."""

from __future__ import annotations

import importlib.util
import pathlib
import types
from collections.abc import Iterable
from typing import Any


class Scenario:
    """A folder with `handlers.py`, which the operator loads, and `steps.py` with `run(s)` and options."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder.resolve()
        self.name = self.folder.name
        self.steps = _load(self.folder / "steps.py", f"steps_of_{self.name}")
        # The custom resources of the scenario; the kinds that the operator watches; those that are recorded.
        self.crds: list[str] = self._option("CRDS", ["widgets"])
        self.watch: list[str] = self._option("WATCH", self.crds)
        self.kinds: list[str] = self._option("KINDS", self.crds)
        # Whether each run has a separate API group, and whether its CRDs exist when the run begins.
        self.own_group: bool = self._option("OWN_GROUP", False)
        self.installed: bool = self._option("INSTALLED", True)
        # How many first calls of a handler are compared.
        self.trace_limits: dict[str, int] = self._option("TRACE_LIMITS", {})
        # Handlers whose calls are in any order, and those of which only the distinct calls count.
        self.unordered: list[str] = self._option("UNORDERED", [])
        self.merged: list[str] = self._option("MERGED", [])
        # How many more writes per object are accepted; requests and fields that are not compared.
        self.request_slack: int = self._option("REQUEST_SLACK", 0)
        self.ignored_requests: list[str] = self._option("IGNORED_REQUESTS", [])
        self.ignored_fields: list[str] = self._option("IGNORED_FIELDS", [])
        # Seconds by which recorded gaps between calls may differ.
        self.tolerance: float = self._option("TOLERANCE", 0.7)
        self.skipped: list[str] = self._option("SKIP_SECTIONS", [])

    @property
    def summary(self) -> str:
        """The first line of the docstring of the steps."""
        return (self.steps.__doc__ or "").strip().splitlines()[0]

    def _option(self, name: str, default: Any) -> Any:
        return getattr(self.steps, name, default)


def _load(path: pathlib.Path, name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(folder: pathlib.Path, patterns: Iterable[str] = ()) -> list[Scenario]:
    """The scenarios of a folder whose names match a pattern; without patterns, all of them."""
    chosen = list(patterns)
    folders = sorted(path.parent for path in folder.glob("*/steps.py"))
    return [
        Scenario(path)
        for path in folders
        if not chosen or any(pathlib.PurePath(path.name).match(pattern) for pattern in chosen)
    ]
