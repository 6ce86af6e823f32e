"""Prints all public names of the installed framework, with their shapes, as JSON. Runs under
any interpreter.
"""

import enum
import inspect
import json
import warnings

warnings.simplefilter("ignore")
import kopf  # noqa: E402
import kopf.on  # noqa: E402

LATER = "is not written yet"


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
    return "unset" if is_unset else repr(value)


def describe(obj):
    result = {"kind": type(obj).__name__}
    if inspect.isclass(obj) and issubclass(obj, enum.Enum):
        result["members"] = {name: repr(member.value) for name, member in obj.__members__.items()}
    elif inspect.isclass(obj):
        result["bases"] = [c.__name__ for c in obj.__mro__ if c.__module__.split(".")[0] != "kopf"]
        ours = [c for c in obj.__mro__ if c.__module__.split(".")[0] == "kopf"]
        result["attributes"] = sorted({name for c in ours for name in vars(c) if not name.startswith("_")})
        result["keys"] = sorted(getattr(obj, "__annotations__", {})) if issubclass(obj, dict) else None
        result["parameters"] = parameters(obj)
        result["methods"] = {
            name: parameters(getattr(obj, name))
            for name in result["attributes"]
            if inspect.isfunction(getattr(obj, name, None))
        }
    elif inspect.isfunction(obj):
        result["parameters"] = parameters(obj)
        result["async"] = inspect.iscoroutinefunction(obj)
    return result


def dump():
    names = {}
    for name in [*kopf.__all__, "harmonize_naming", "adjust_namespace"]:
        try:
            names[name] = describe(getattr(kopf, name))
        except ImportError:
            names[name] = LATER
    for name in dir(kopf.on):
        if inspect.isfunction(getattr(kopf.on, name)) and not name.startswith("_"):
            names[f"on.{name}"] = describe(getattr(kopf.on, name))
    public = sorted(name for name in set(dir(kopf)) - set(kopf.__all__) if not name.startswith("_"))
    return {"all": list(kopf.__all__), "unlisted": public, "names": names}


if __name__ == "__main__":
    print(json.dumps(dump()))
