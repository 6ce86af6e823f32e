"""Options in the section `[tool.kopf]` of `pyproject.toml`, in the current folder.

The keys are the long names of options, and `files`. Keys of `[tool.kopf]` itself are for `run`, `dev` and
`check`, as far as these have such an option; those of `[tool.kopf.COMMAND]` are for this command. The command
line and the environment have precedence. The `kubeconfig` of `[tool.kopf]` is not for `dev`, which would
write it. Options that confirm a command are only for the command line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from kopf._objects.suggestions import did_you_mean

FILE = "pyproject.toml"
SECTION = "tool.kopf"
FILES = "files"
SHARING_COMMANDS = ("run", "dev", "check")
UNSHARED = {("dev", "kubeconfig")}

Defaults = dict[str, dict[str, Any]]


def read_defaults(group: click.Group, path: str | os.PathLike[str] = FILE) -> Defaults:
    """The defaults of the commands' parameters, as the `default_map` of click.

    Unknown keys and wrong values are usage errors. Without such a file or section, there are no defaults.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return {}
    if SECTION not in text:  # most projects have none: nothing else is imported for them
        return {}
    import tomllib

    try:
        table = tomllib.loads(text).get("tool", {}).get("kopf", {})
    except tomllib.TOMLDecodeError as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise click.UsageError(f"[{SECTION}] of {path} is not a table.")
    return _defaults(group, table, path)


def _defaults(group: click.Group, table: Mapping[str, Any], path: str | os.PathLike[str]) -> Defaults:
    parameters = {name: _parameters(command) for name, command in group.commands.items()}
    shared = {key: value for key, value in table.items() if key not in parameters}
    known = {key for name in SHARING_COMMANDS for key in parameters.get(name, ())}
    _check_keys(shared, known, f"[{SECTION}] of {path}")
    defaults: Defaults = {}
    for name, keys in parameters.items():
        where = f"[{SECTION}.{name}] of {path}"
        own = table.get(name, {})
        if not isinstance(own, dict):
            raise click.UsageError(f"{where} is not a table.")
        _check_keys(own, keys, where)
        for key in own:
            if not getattr(keys[key], "allow_from_autoenv", True):
                raise click.UsageError(
                    f"{where} has {key!r}, which is only for the command line: it would confirm each command."
                )
        inherited = shared if name in SHARING_COMMANDS else {}
        values = {key: value for key, value in inherited.items() if (name, key) not in UNSHARED} | own
        found = {
            keys[key].name or "": _convert(keys[key], value, f"{key!r} in [{SECTION}] of {path}")
            for key, value in values.items()
            if key in keys
        }
        if found:
            defaults[name] = found
    return defaults


def _parameters(command: click.Command) -> dict[str, click.Parameter]:
    found: dict[str, click.Parameter] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            found[FILES] = parameter
        else:
            names = [name for name in parameter.opts if name.startswith("--")]
            found |= {name.removeprefix("--"): parameter for name in names}
    return found


def _check_keys(table: Mapping[str, Any], known: Mapping[str, Any] | set[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise click.UsageError(f"{where} has an unknown option {key!r}{did_you_mean(key, known)}")


def _convert(parameter: click.Parameter, value: Any, where: str) -> Any:
    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
    if isinstance(value, bool) != is_flag:
        raise click.UsageError(f"{where} must {'' if is_flag else 'not '}be true or false.")
    if parameter.multiple or parameter.nargs != 1:
        values = value if isinstance(value, list) else [value]
        return [str(item) for item in values]
    if isinstance(value, (list, dict)):
        raise click.UsageError(f"{where} must be one value.")
    return value if is_flag else str(value)
