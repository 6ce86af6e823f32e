"""Writes those pages of the documentation that are made of the code: the settings and the command line.

Usage: python scripts/reference.py [--check]
"""

import ast
import inspect
import pathlib
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
MADE = "<!-- Made by scripts/reference.py of the code: change it there. -->\n"

SETTINGS = """\
# Settings

Settings are attributes, grouped by what they are about. They are changed in startup handlers, or are given
to [embedded](embedding.md) operators and to [tests](testing.md). All times are in seconds. Unless said
otherwise, a setting is read when it is used: it can be changed later, too.

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
for `kopf run --verbose`; several values are separated by spaces; the command line wins over the environment.
`-h` shows the options of a command.

| exit code | |
|---|---|
| 0 | the command is done, or was stopped by Ctrl+C or SIGTERM |
| 1 | it has failed |
| 2 | the options or the files are wrong |
| 130 | it was stopped at once, by a second Ctrl+C |
| more than 128 | `kopf dev` only: a signal has ended the operator's process; 137 is SIGKILL |

A command that fails prints one paragraph on what has failed, why, and what to do. A traceback is shown only
if the error is in your code, and has only your frames; `--debug` shows the whole one. With
`--log-format json`, failures are lines of JSON, too.

Files are loaded first, in their order, then modules. The folder of each file is put in front of the import
path; files are not called `__main__`. What they declare at the level of modules is what is run.
"""


def paragraphs(text: str | None) -> str:
    """The lines of a docstring as one line."""
    return " ".join(inspect.cleandoc(text or "").split())


def settings_page() -> str:
    """The page of the settings: what is said in the code about each of them."""
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
        elif isinstance(line, ast.FunctionDef) and any(
            ast.unparse(d) == "property" for d in line.decorator_list
        ):
            rows.append(
                (line.name, ast.unparse(line.returns or line), "", paragraphs(ast.get_docstring(line)))
            )
    table = ["| setting | type | default | |", "|---|---|---|---|"]
    for setting, kind, default, text in rows:
        cells = [f"`settings.{name}.{setting}`", f"`{kind}`", f"`{default}`" if default else "", text]
        table.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return f"## {name}\n\n{paragraphs(ast.get_docstring(node))}\n\n" + "\n".join(table) + "\n"


def shown(value: ast.expr | None) -> str:
    """A default as it is written; what makes it, if it is made."""
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
    """The page of the command line: what the commands say about themselves."""
    import click
    from kopf import cli

    page = [MADE, COMMANDS]
    for name, command in cli.main.commands.items():
        rows = ["| option | environment | |", "|---|---|---|"]
        usage = [f"    kopf {name} [options]"]
        context = click.Context(command, info_name=name)
        for option in command.params:
            if isinstance(option, click.Argument):
                usage.append(f"{(option.name or '').upper()}...")
                continue
            assert isinstance(option, click.Option)
            spelt = ", ".join(f"`{text}`" for text in [*option.opts, *option.secondary_opts])
            kind = "" if option.is_flag else f" {option.make_metavar(context)}"
            variables = [option.envvar] if isinstance(option.envvar, str) else []
            variables.append(f"KOPF_{name.upper()}_{(option.name or '').upper()}")
            text = (option.help or "") + (" Required." if option.required else "")
            text += " Can be repeated." if option.multiple else ""
            text += default_of(option)
            environment = ", ".join(f"`{variable}`" for variable in variables)
            case = f"| {spelt}{kind.replace('|', chr(92) + '|')} | {environment} | {text.strip()} |"
            rows.append(case)
        page.append(
            f"## kopf {name}\n\n{paragraphs(command.help)}\n\n{' '.join(usage)}\n\n" + "\n".join(rows) + "\n"
        )
    return "\n".join(page)


PAGES = {"docs/settings.md": settings_page, "docs/commands.md": commands_page}


def main() -> int:
    """Write the pages, or tell which ones are not as they should be."""
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
