"""The API pages have all public names, and docstrings describe all parameters, options and settings."""

import ast
import dataclasses
import enum
import importlib
import inspect
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import click
import kopf
import kopf.client
import kopf.testing
import pytest

pytestmark = pytest.mark.contract("api 4")

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIRECTIVE = re.compile(r"^\.\. auto(\w+):: ([\w.]+)(\(\))?$", re.MULTILINE)
OPTIONS = [f"{kind} options" for kind in ("Resource", "Handler", "Filter", "Admission", "Background")]
SECTIONS = ("Args", "Attributes", "Common parameters", *OPTIONS)
# The unit of a setting, by its type: the words of which its description has one.
SECONDS = ("second",)
COUNTS = ("second", "number", "bytes", "memory", "priority", "level", "iterations")
LIFECYCLES = ("all_at_once", "asap", "one_by_one", "randomized", "shuffled")


def directives(page: str) -> list[tuple[str, str, bool]]:
    """The directives of a page: the kind, the name, and whether the signature is left out."""
    text = (ROOT / "docs" / page).read_text()
    return [(kind, name, bool(empty)) for kind, name, empty in DIRECTIVE.findall(text)]


def lookup(name: str) -> Any:
    """The object of a dotted name."""
    value: Any = kopf
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value


def described(doc: str | None) -> dict[str, str]:
    """The parameters in the sections of a docstring, with their descriptions."""
    found: dict[str, str] = {}
    in_section, name = False, ""
    for line in inspect.cleandoc(doc or "").splitlines():
        if line and not line.startswith(" "):
            in_section = line.removesuffix(":") in SECTIONS and line.endswith(":")
        elif in_section and (match := re.fullmatch(r"    (\*{0,2}\w+)(?: \(.+?\))?: (.+)", line)):
            name = match[1]
            assert name not in found, f"{name} is described twice"
            found[name] = match[2]
        elif in_section and line.strip():
            found[name] += " " + line.strip()
    return found


def parameters(function: Any) -> set[str]:
    """The names of the public parameters, with the asterisks of variable ones."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return {
        stars.get(parameter.kind, "") + name
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in ("self", "cls") and (name == "_" or not name.startswith("_"))
    }


def shared(owner: Any) -> dict[str, str]:
    """The parameters that the docstrings of a class and of its bases, or of a module, share."""
    docs = [base.__doc__ for base in owner.__mro__] if inspect.isclass(owner) else [owner.__doc__]
    texts = [re.sub(r"(?s)(^|\n)( *)(Args|Attributes):.*?(?=\n\2\S|$)", "", doc or "") for doc in docs]
    return {name: text for doc in reversed(texts) for name, text in described(doc).items()}


def mismatch(function: Any, own: dict[str, str], common: dict[str, str]) -> str:
    """How the description differs from the signature; empty if it does not."""
    names = parameters(function)
    missing = names - own.keys() - common.keys()
    unknown = own.keys() - names
    return " ".join([*(f"lacks {name}" for name in missing), *(f"has no {name}" for name in unknown)])


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods of a class that are ours."""
    for name in dir(kind):
        owner = next((base for base in kind.__mro__ if name in vars(base)), object)
        is_ours = owner.__module__.partition(".")[0] == "kopf" and not name.startswith("_")
        if is_ours and inspect.isroutine(inspect.getattr_static(kind, name)):
            yield name, getattr(kind, name)


# Methods of the storages that make the names of annotations; operators override `store` and `fetch`.
INTERNAL = {"make_keys", "make_safe_key", "make_suffix", "make_v1_key", "make_v2_key", "mark_key"} | {
    "remove_annotations",
    "remove_empty_stanzas",
}
API = directives("reference/api.md")
FUNCTIONS = [name for kind, name, _ in API if kind == "function"]
CLASSES = [(name, empty) for kind, name, empty in API if kind in ("class", "exception")]
DECORATORS = [name for kind, name, _ in directives("reference/decorators.md") if kind == "decorator"]


def test_all_public_names_have_one_directive():
    names = {f"kopf.{name}" for name in (*kopf.__all__, *kopf._ADDED)}
    names |= {f"kopf.testing.{name}" for name in kopf.testing.__all__}
    known = [getattr(kopf, name) for name in (*kopf.__all__, *kopf._ADDED)]
    names |= {
        f"kopf.client.{name}"
        for name in kopf.client.__all__
        if not any(getattr(kopf.client, name) is value for value in known)
    }
    names |= {f"kopf.lifecycles.{name}" for name in LIFECYCLES}
    names |= {
        f"kopf.on.{name}"
        for name, value in vars(kopf.on).items()
        if inspect.isfunction(value) and value.__module__ == "kopf.on" and not name.startswith("_")
        if not hasattr(kopf, name) or getattr(kopf, name) is not value
    }
    names -= {"kopf.on", "kopf.lifecycles", "kopf.client"}
    listed = [name for _, name, _ in API] + DECORATORS
    assert len(names) > 170
    assert sorted(listed) == sorted(names)


def test_directives_are_of_the_kinds_of_their_names():
    for kind, name, _ in API:
        value = lookup(name)
        is_error = inspect.isclass(value) and issubclass(value, BaseException)
        expected = "exception" if is_error else "class" if inspect.isclass(value) else "data"
        assert kind == ("function" if inspect.isroutine(value) else expected), name


def test_aliases_and_constants_are_described():
    names = [name.removeprefix("kopf.") for kind, name, _ in API if kind == "data"]
    assert len(names) > 15
    bare = []
    for name in names:
        module = importlib.import_module(kopf._MODULES_BY_NAME[name])
        lines = inspect.getsource(module)
        if not re.search(rf'^{name}\b[^=\n]* = .*\n"""', lines, re.MULTILINE):
            bare.append(name)
    assert bare == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_parameters_of_functions_are_described(name):
    function = lookup(name)
    doc = function.__doc__
    assert doc, "no docstring"
    # It shows the signature of the function whose arguments it passes on.
    if name == "kopf.operator":
        assert parameters(function) == parameters(kopf.spawn_tasks)
        assert described(doc).keys() == {"**kwargs"}
        return
    assert mismatch(function, described(doc), {}) == ""


@pytest.mark.parametrize("name", DECORATORS)
def test_the_options_of_decorators_are_described(name):
    function = lookup(name)
    own, common = described(function.__doc__), shared(kopf.on)
    assert mismatch(function, own, common) == ""
    assert own.keys() & common.keys() == set(), "described in both places"


def test_shared_options_are_of_several_decorators():
    used = [option for name in DECORATORS for option in parameters(lookup(name))]
    common = shared(kopf.on)
    assert len(common) > 25
    assert [option for option in common if used.count(option) < 2] == []


def test_shared_options_have_the_types_of_their_signatures():
    types = dict(re.findall(r"(?m)^    (\w+) \((.+?)\): ", kopf.on.__doc__))
    assert types.keys() == shared(kopf.on).keys()
    declared: dict[str, set[str]] = {}
    for name in DECORATORS:
        for option, item in inspect.signature(lookup(name)).parameters.items():
            declared.setdefault(option, set()).update(str(item.annotation).split(" | "))
    plain = {"str", "int", "float", "bool"}
    aliases = {"field": "str", "operation": "str"}
    for option, text in types.items():
        found = declared[option] | {aliases.get(option)}
        assert plain.intersection(text.split(" | ")) == plain & found, option


@pytest.mark.parametrize("name", DECORATORS)
def test_times_of_decorators_have_a_unit(name):
    function = lookup(name)
    texts = {**shared(kopf.on), **described(function.__doc__)}
    signature = inspect.signature(function)
    times = [option for option, item in signature.parameters.items() if "float" in str(item.annotation)]
    assert times or "timeout" not in signature.parameters
    assert [option for option in times if "second" not in texts[option]] == []


@pytest.mark.parametrize(("name", "is_created_by_kopf"), CLASSES)
def test_the_parameters_of_classes_are_described(name, is_created_by_kopf):
    kind = lookup(name)
    assert kind.__doc__, "no docstring"
    makes = [base for base in kind.__mro__ if "__init__" in vars(base)]
    # An inherited constructor is described with its class, and those of the standard library in its manual.
    owner = makes[0]
    if is_created_by_kopf or issubclass(kind, enum.Enum) or owner.__module__.partition(".")[0] != "kopf":
        return
    assert owner is kind or owner in [lookup(name) for name, _ in CLASSES], "inherited from a private class"
    common = shared(owner)
    own = {name: text for name, text in described(owner.__doc__).items() if name not in common}
    assert mismatch(kind, own, common) == ""


@pytest.mark.parametrize("name", [name for name, _ in CLASSES])
def test_the_parameters_of_methods_are_described(name):
    kind = lookup(name)
    # The blocking client has the methods of the other one, which are described there.
    common_of = kopf.client.Api if kind is kopf.client.SyncApi else kind
    problems = {}
    for method, function in methods(kind):
        if method in INTERNAL:
            continue
        doc = inspect.getdoc(getattr(common_of, method))
        problems[method] = mismatch(function, described(doc), shared(common_of))
    assert {method: text for method, text in problems.items() if text} == {}


def test_methods_are_found():
    counted = {name: len(list(methods(lookup(name)))) for name, _ in CLASSES}
    assert counted["kopf.client.Api"] > 15 and counted["kopf.testing.Cluster"] > 25


@pytest.mark.parametrize("name", [name for name, _ in CLASSES if dataclasses.is_dataclass(lookup(name))])
def test_the_fields_of_dataclasses_are_described(name):
    kind = lookup(name)
    if kind is kopf.OperatorSettings:
        return  # They are groups, with separate sections.
    known = described(kind.__doc__).keys() | attribute_docs(kind).keys()
    fields = {item.name for item in dataclasses.fields(kind) if not item.name.startswith("_")}
    assert fields - known == set()


def attribute_docs(kind: type) -> dict[str, tuple[str, str]]:
    """The annotations and the docstrings of the attributes and properties of a class."""
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        is_doc = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and is_doc:
            found[node.target.id] = (ast.unparse(node.annotation), str(after.value.value))  # type: ignore[union-attr]
        elif isinstance(node, ast.FunctionDef) and node.returns is not None and ast.get_docstring(node):
            found.setdefault(node.name, (ast.unparse(node.returns), ast.get_docstring(node) or ""))
    return found


def settings_groups() -> dict[str, Any]:
    """All groups of settings by their names."""
    settings = kopf.OperatorSettings()
    names = [item.name for item in dataclasses.fields(settings)] + [
        "reconciling",
        "caching",
        "health",
        "leadership",
    ]
    return {name: getattr(settings, name) for name in names}


def test_all_groups_of_settings_are_on_the_page():
    page = [(kind, name) for kind, name, _ in directives("settings.md")]
    groups = settings_groups()
    assert page == [
        ("class", f"{type(group).__module__}.{type(group).__name__}") for group in groups.values()
    ]
    text = (ROOT / "docs/settings.md").read_text()
    assert [line for line in text.splitlines() if line.startswith("## settings.")] == [
        f"## settings.{name}" for name in groups
    ]
    assert kopf.OperatorSettings.__annotations__.keys() <= groups.keys()


@pytest.mark.parametrize("group", settings_groups())
def test_settings_are_described_with_their_units_and_defaults(group):
    value = settings_groups()[group]
    known = attribute_docs(type(value))
    public = [item for item in dataclasses.fields(value) if not item.name.startswith("_")]
    assert public
    for item in public:
        assert item.name in known, f"{item.name} has no description"
        annotation, text = known[item.name]
        types = set(re.findall(r"\w+", annotation))
        units = SECONDS if types & {"float", "Backoffs"} else COUNTS if "int" in types else ("",)
        assert any(unit in text.lower() for unit in units), f"{item.name} has no unit: {text}"
        # The generator shows values, but no factories.
        if item.default_factory is not dataclasses.MISSING:
            assert "default" in text, f"{item.name} has no default: {text}"


def test_a_wrong_description_is_found():
    def function(first, *, second=1):
        """Do it.

        Args:
            first: The first one,
                in two lines.
            third: There is none.

        Returns:
            second: This is no parameter.
        """

    assert described(function.__doc__) == {"first": "The first one, in two lines.", "third": "There is none."}
    assert mismatch(function, described(function.__doc__), {}) == "lacks second has no third"
    assert mismatch(function, {"first": ""}, {"second": "", "other": ""}) == ""


def test_all_environment_variables_are_explained():
    page = (ROOT / "docs/commands.md").read_text()
    section = page.split("## Environment variables\n")[1].split("\n## ")[0]
    read = r"environ(?:\.get\(|\[)[\"'](\w+)|[\"'](\w+)[\"'] (?:not )?in os\.environ"
    read += r"|^(?:ASSETS|VARIABLE) = [\"'](\w+)"
    files = (ROOT / "python/kopf").rglob("*.py")
    found = {name for file in files for it in re.findall(read, file.read_text(), re.M) for name in it if name}
    assert {"KOPF_COMPAT", "KUBECONFIG", "KUBEBUILDER_ASSETS", "POD_ID", "NO_COLOR"} <= found
    assert {name for name in found if f"`{name}`" not in section} == set()


def test_all_commands_are_explained():
    from kopf import cli

    assert ".. click:: kopf.cli:main" in (ROOT / "docs/commands.md").read_text()
    options = [option for command in cli.main.commands.values() for option in command.params]
    assert len(options) > 40
    assert [it.name for it in options if isinstance(it, click.Option) and not it.help] == []
    assert [name for name, command in cli.main.commands.items() if not command.help] == []
