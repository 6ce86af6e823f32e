"""Prints all public names of the installed framework, with their shapes, as JSON. Runs under
any interpreter.
"""

import dataclasses
import enum
import inspect
import json
import re
import types
import typing
import warnings

warnings.simplefilter("ignore")
import click  # noqa: E402
import kopf  # noqa: E402

PUBLIC = sorted(name for name in set(dir(kopf)) - set(kopf.__all__) if not name.startswith("_"))
import kopf.cli  # noqa: E402
import kopf.on  # noqa: E402
import kopf.testing  # noqa: E402


def parameters(obj):
    try:
        signature = inspect.signature(obj)
    except (TypeError, ValueError):
        return None
    return [[*name_and_kind(p), default(p.default)] for p in signature.parameters.values()]


# Name-mangled parameters are an old way to have them positional-only.
def name_and_kind(parameter):
    positional_only = "__" in parameter.name or parameter.kind is parameter.POSITIONAL_ONLY
    return ["", "POSITIONAL_ONLY"] if positional_only else [parameter.name, parameter.kind.name]


def default(value):
    if value is inspect.Parameter.empty:
        return "required"
    is_unset = isinstance(value, enum.Enum) and "unset" in type(value).__name__.lower()
    return "unset" if is_unset else shown(value)


def shown(value):
    """As text, without addresses in the memory and without the places of private classes."""
    text = re.sub(r" at 0x[0-9a-f]+", "", value if isinstance(value, str) else repr(value))
    return re.sub(r"\bkopf\._\w+\.(\w+\.)*", "kopf...", text)


def is_ours(cls):
    return cls.__module__.split(".")[0] == "kopf"


def fields(cls):
    """The fields of a data class in their order, with their defaults; what makes a default is only named."""
    made = dataclasses.MISSING
    return [
        [
            field.name,
            shown(field.default)
            if field.default is not made
            else getattr(field.default_factory, "__name__", "required")
            if field.default_factory is not made
            else "required",
        ]
        for field in dataclasses.fields(cls)
        if not field.name.startswith("_")
    ]


def describe(obj):
    result = {"kind": type(obj).__name__}
    if inspect.isclass(obj) and issubclass(obj, enum.Enum):
        result["members"] = {name: repr(member.value) for name, member in obj.__members__.items()}
        result["bases"] = [c.__name__ for c in obj.__mro__ if not is_ours(c)]
    elif inspect.isclass(obj):
        result["bases"] = [c.__name__ for c in obj.__mro__ if not is_ours(c)]
        # Bases of theirs that are public are bases here, too.
        public = {id(value) for value in vars(kopf).values()} | {id(getattr(kopf, n)) for n in kopf.__all__}
        ours = [c for c in obj.__mro__ if is_ours(c)]
        result["public bases"] = [c.__name__ for c in ours[1:] if id(c) in public]
        result["attributes"] = sorted({name for c in ours for name in vars(c) if not name.startswith("_")})
        result["properties"] = sorted(
            name for name in result["attributes"] if isinstance(getattr(obj, name, None), property)
        )
        result["keys"] = sorted(getattr(obj, "__annotations__", {})) if issubclass(obj, dict) else None
        result["total"] = getattr(obj, "__total__", None)
        result["abstract"] = sorted(getattr(obj, "__abstractmethods__", ()))
        result["parameters"] = parameters(obj)
        result["methods"] = {
            name: parameters(getattr(obj, name))
            for name in result["attributes"]
            if inspect.isfunction(getattr(obj, name, None))
        }
        result["coroutines"] = [
            name for name in result["methods"] if inspect.iscoroutinefunction(getattr(obj, name))
        ]
        if dataclasses.is_dataclass(obj):
            result["fields"] = fields(obj)
            result["frozen"] = obj.__dataclass_params__.frozen
    elif inspect.isfunction(obj):
        result["parameters"] = parameters(obj)
        result["async"] = inspect.iscoroutinefunction(obj)
    elif isinstance(obj, types.ModuleType):
        result["functions"] = {
            name: parameters(value)
            for name, value in vars(obj).items()
            if inspect.isfunction(value) and is_ours(value) and not name.startswith("_")
        }
    elif isinstance(obj, enum.Enum):
        result["value"] = [obj.name, obj.value, type(obj).__name__]
    elif typing.get_origin(obj) is not None:
        arguments = [getattr(arg, "__name__", shown(str(arg))) for arg in typing.get_args(obj)]
        result["alias"] = [getattr(typing.get_origin(obj), "__name__", ""), *arguments]
    return result


def describe_settings():
    """Every group with its fields, properties and defaults."""
    settings = kopf.OperatorSettings()
    groups = [field.name for field in dataclasses.fields(settings)]
    return {
        group: {
            "class": type(getattr(settings, group)).__name__,
            "fields": [
                [name, value if name not in UNSTABLE else UNSTABLE[name](settings)]
                for name, value in fields(type(getattr(settings, group)))
            ],
            "values": {
                name: shown(getattr(getattr(settings, group), name))
                for name, _ in fields(type(getattr(settings, group)))
            },
            "properties": sorted(
                name
                for name, value in vars(type(getattr(settings, group))).items()
                if isinstance(value, property) and not name.startswith("_")
            ),
        }
        for group in groups
    }


# Fields with a default factory: the value that it returns, since its name is private.
UNSTABLE = {
    name: (lambda settings, group=group, name=name: type(getattr(getattr(settings, group), name)).__name__)
    for group, names in {
        "watching": ["label_selectors", "field_selectors", "shard_selectors"],
        "execution": ["executor"],
        "persistence": ["progress_storage", "diffbase_storage"],
    }.items()
    for name in names
}


def describe_commands():
    """Each command with its parameters; texts of help are not compared."""
    return {
        name: [
            {
                "name": p.name,
                "opts": p.opts,
                "secondary": p.secondary_opts,
                "type": getattr(p.type, "name", str(p.type)),
                "required": p.required,
                "multiple": p.multiple,
                "flag": getattr(p, "is_flag", None),
                "default": shown(p.get_default(click.Context(command))),
                "envvar": p.envvar,
                "nargs": p.nargs,
            }
            for p in command.params
        ]
        for name, command in kopf.cli.main.commands.items()
    }


def dump():
    names = {name: describe(getattr(kopf, name)) for name in [*kopf.__all__, *UNLISTED]}
    for name in dir(kopf.on):
        if inspect.isfunction(getattr(kopf.on, name)) and not name.startswith("_"):
            names[f"on.{name}"] = describe(getattr(kopf.on, name))
    for name in kopf.testing.__all__:
        names[f"testing.{name}"] = describe(getattr(kopf.testing, name))
    for name in ["CLIControls", "logging_options"]:
        names[f"cli.{name}"] = describe(getattr(kopf.cli, name))
    return {
        "all": list(kopf.__all__),
        "unlisted": PUBLIC,
        "testing": list(kopf.testing.__all__),
        "decorators": sorted(name for name in dir(kopf.on) if name.endswith("Decorator")),
        "names": names,
        "settings": describe_settings(),
        "commands": describe_commands(),
    }


UNLISTED = ["harmonize_naming", "adjust_namespace"]

if __name__ == "__main__":
    print(json.dumps(dump()))
