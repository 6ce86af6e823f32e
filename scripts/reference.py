"""Generate the pages of the settings, the command line, the decorators and the public names from the code.

Usage: python scripts/reference.py [--check]
"""

import ast
import inspect
import pathlib
import sys
from typing import Any

import reference_names

ROOT = pathlib.Path(__file__).resolve().parents[1]
MADE = "<!-- Generated from the code by scripts/reference.py. Do not edit. -->\n"

SETTINGS = """\
# Settings

Settings are attributes in groups. Change them in startup handlers, or pass them to [embedded](embedding.md)
operators and to [tests](testing.md). All times are in seconds. Unless noted otherwise, Kopf reads a setting
when it uses it, so you can change it later, too.

```python
import kopf


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.execution.max_workers = 50
    settings.networking.error_backoffs = [1, 5, 15]
    settings.watching.label_selectors["pods"] = "app=mine"
```
"""

COMMANDS = """\
# The command line

`kopf` and `python -m kopf` are the same. Options have environment variables, such as `KOPF_RUN_VERBOSE=1`
for `kopf run --verbose`. Separate several values with spaces. The command line has precedence over the
environment, and both over `pyproject.toml`. `-h` shows the options of a command with their defaults.

| exit code | meaning |
|---|---|
| 0 | the command has succeeded, or was stopped by Ctrl+C or SIGTERM |
| 1 | the command has failed; `kopf check`: there are problems |
| 2 | usage error: wrong options or files |
| 3 | the requested condition is not met, such as `kopf status --fail-on`; or an operator is still running |
| 130 | the command was stopped at once, by a second Ctrl+C |
| more than 128 | `kopf dev` only: a signal has ended the operator process; 137 is SIGKILL |

A failed command prints one paragraph: what failed, why, and what to do. There is a traceback only if the
error is in your code, and it has only your frames; `--debug` shows all frames. With `--log-format json`,
failures are JSON lines, too.

## Machine-readable output

`kopf check -o json` prints one JSON object to stdout. Fields are only added, never renamed:

| field | value |
|---|---|
| `operator` | a summary of the handlers |
| `skipped` | the reason why the cluster is not checked, or null |
| `problems` | a list of the problems; the exit code is 1 if there are any |
| `problems[].kind` | one of the kinds below |
| `problems[].text` | the problem as in the text output |
| `problems[].permission` | the missing permission, or null |

The kinds are `declaration`, `startup`, `credentials`, `connection`, `resource`, `namespace` and `permission`.
A permission has the fields `verb`, `resource` (such as `guests` or `guests/status`), `group`, `namespace`
(empty for all namespaces, and for cluster-scoped resources), and `unless`: the setting with which it is not
necessary, or an empty string. The output of your handlers goes to stderr.

`kopf status -o json` prints one JSON object, too. With `--watch`, there is one line for each change. Times
are in ISO 8601, and unknown values are null:

| field | value |
|---|---|
| `version` | 1; it changes if a field is removed or gets another meaning |
| `objects` | a list of the objects |
| `objects[].apiVersion`, `objects[].kind`, `objects[].namespace`, `objects[].name` | the object |
| `objects[].state` | its [state](how-to/object-states.md) |
| `objects[].reason` | the reason of the current handling: `create`, `update`, `resume`, `delete` |
| `objects[].done`, `objects[].total` | its finished handlers, and all its handlers |
| `objects[].handler`, `objects[].attempts` | the handler behind the state, its attempts |
| `objects[].next` | the time of the next attempt, which may have passed |
| `objects[].since` | the time since when the object is in this state |
| `objects[].message` | the last error of that handler, or the problem |
| `objects[].deleted` | the time when the deletion was requested |
| `objects[].finalizers` | the finalizers of the operator that the object has |
| `objects[].handlers` | a list of the handlers with progress, with sub-handlers |
| `objects[].handlers[].id` | the id; without files, `.` is for `/`, and long ids are cut |
| `objects[].handlers[].state` | `waiting`, `retrying`, `succeeded` or `failed` |
| `objects[].handlers[].attempts` | the number of attempts |
| `objects[].handlers[].message` | the last error |
| `objects[].handlers[].started`, `objects[].handlers[].stopped`, `objects[].handlers[].next` | times |
| `counts` | a list of the kinds, with all their objects |
| `counts[].resource` | the plural name with the group |
| `counts[].total`, `counts[].states` | the number of objects, and an object with the number by states |
| `peers` | a list of the live operators of the peering |
| `peers[].peering` | the name of the peering object, with its namespace |
| `peers[].id`, `peers[].priority`, `peers[].seen` | the operator, and the time of its last keep-alive |

`kopf release-finalizers -o json` has the same fields `version` and `peers`, without `seen`, and these:

| field | value |
|---|---|
| `applied` | whether the changes are applied |
| `objects` | a list of the objects with something to remove |
| `objects[].apiVersion`, `objects[].kind`, `objects[].namespace`, `objects[].name` | the object |
| `objects[].finalizers`, `objects[].remaining` | the finalizers to remove, and those of others |
| `objects[].deleted` | the time when the deletion was requested |
| `objects[].result` | `planned`, `released`, `gone` (it does not exist any more) or `failed` |
| `objects[].error` | the error of a failure |

## Configuration file

Options can be in the section `[tool.kopf]` of `pyproject.toml` in the current folder. The keys are the long
names of options, and `files`. Those of `[tool.kopf]` are for `run`, `dev` and `check`, if they have such an
option; those of `[tool.kopf.COMMAND]` are for one command. Unknown keys are usage errors.

```toml
[tool.kopf]
files = ["handlers.py"]
namespace = ["team-*", "default"]

[tool.kopf.run]
liveness = "http://0.0.0.0:8080/healthz"

[tool.kopf.dev]
manifests = ["crd.yaml", "example.yaml"]
reload = true
```

Files or modules on the command line replace all files and modules of the section, `-n` replaces
`all-namespaces`, and `-A` replaces `namespace`.

## Files and modules

Kopf loads the files first, in their order, then the modules. It puts the folder of each file at the beginning
of the import path; `__name__` is not `__main__`. It runs the handlers that are declared at the module level.
"""


def paragraphs(text: str | None) -> str:
    """The lines of a docstring as one line."""
    return " ".join(inspect.cleandoc(text or "").split())


def settings_page() -> str:
    """The page of the settings, with their docstrings."""
    source = (ROOT / "python/kopf/_intents/settings.py").read_text()
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    page = [MADE, SETTINGS]
    for line in classes["OperatorSettings"].body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            page.append(group(line.target.id, classes[ast.unparse(line.annotation)]))
    return "\n".join(page)


def group(name: str, node: ast.ClassDef) -> str:
    """The section of one group."""
    rows = []
    for line, after in zip(node.body, [*node.body[1:], None], strict=True):
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = paragraphs(str(after.value.value))
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            if not line.target.id.startswith("_"):
                rows.append((line.target.id, ast.unparse(line.annotation), shown(line.value), text))
        elif (
            isinstance(line, ast.FunctionDef)
            and not line.name.startswith("_")
            and any(ast.unparse(d) == "property" for d in line.decorator_list)
        ):
            rows.append(
                (line.name, ast.unparse(line.returns or line), "", paragraphs(ast.get_docstring(line)))
            )
    table = ["| setting | type | default | description |", "|---|---|---|---|"]
    for setting, kind, default, text in rows:
        cells = [f"`settings.{name}.{setting}`", f"`{kind}`", f"`{default}`" if default else "", text]
        table.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return f"## {name}\n\n{paragraphs(ast.get_docstring(node))}\n\n" + "\n".join(table) + "\n"


def shown(value: ast.expr | None) -> str:
    """The source of a default value or of its factory."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "field":
        made = {keyword.arg: ast.unparse(keyword.value) for keyword in value.keywords}
        return f"{made['default_factory']}()" if "default_factory" in made else made["default"]
    return ast.unparse(value) if value is not None else ""


def default_of(option: Any) -> str:
    """The default of an option, if help texts show it."""
    if isinstance(option.show_default, str):
        return f" Default: {option.show_default}."
    is_plain = isinstance(option.default, (str, int)) and not isinstance(option.default, bool)
    return f" Default: {option.default}." if is_plain else ""


def commands_page() -> str:
    """The page of the command line, with the help texts of the commands."""
    import click
    from kopf import cli

    page = [MADE, COMMANDS]
    for name, command in cli.main.commands.items():
        rows = ["| option | environment | description |", "|---|---|---|"]
        usage = [f"    kopf {name} [options]"]
        context = click.Context(command, info_name=name)
        for option in command.params:
            if isinstance(option, click.Argument):
                usage.append(f"{(option.name or '').upper()}{'...' if option.nargs == -1 else ''}")
                continue
            assert isinstance(option, click.Option)
            spelt = ", ".join(f"`{text}`" for text in [*option.opts, *option.secondary_opts])
            kind = "" if option.is_flag else f" {option.make_metavar(context)}"
            variables = [option.envvar] if isinstance(option.envvar, str) else []
            if option.allow_from_autoenv:
                variables.append(f"KOPF_{name.upper().replace('-', '_')}_{(option.name or '').upper()}")
            text = (option.help or "") + (" Required." if option.required else "")
            text += " Can be repeated." if option.multiple else ""
            text += default_of(option)
            environment = ", ".join(f"`{variable}`" for variable in variables)
            case = f"| {spelt}{kind.replace('|', chr(92) + '|')} | {environment} | {text.strip()} |"
            rows.append(case)
        table = "\n" + "\n".join(rows) + "\n" if rows[2:] else ""
        page.append(f"## kopf {name}\n\n{paragraphs(command.help)}\n\n{' '.join(usage)}\n{table}")
    return "\n".join(page)


def decorators_page() -> str:
    """The page of the decorators."""
    return MADE + "\n" + reference_names.decorators_page()


def api_page() -> str:
    """The page of all public names."""
    return MADE + "\n" + reference_names.api_page()


PAGES = {
    "docs/settings.md": settings_page,
    "docs/commands.md": commands_page,
    "docs/reference/decorators.md": decorators_page,
    "docs/reference/api.md": api_page,
}


def main() -> int:
    """Write the pages, or report the outdated ones."""
    stale = []
    for name, make in PAGES.items():
        text = make()
        if "--check" in sys.argv:
            if not (ROOT / name).exists() or (ROOT / name).read_text() != text:
                stale.append(name)
        else:
            (ROOT / name).write_text(text)
    if stale:
        print(f"Stale: {', '.join(stale)}. Run: python scripts/reference.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
