"""How the site is built: of all pages of the repository, with the links between them as they are on disk.

The root of the sources is the root of the repository: pages refer to examples, and examples to pages.
"""

import fnmatch
import html
import pathlib
import re
import textwrap

import click
import kopf
from docutils import nodes
from kopf import cli
from sphinx.pycode import ModuleAnalyzer

project = "Kopf with a Rust core"
copyright = "the authors, MIT licence"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "docs/images/*", "examples/README.md", "examples/*/README.md"]
exclude_patterns = [".git", ".venv", ".venvs", "dist", "python", "rust", "site", "target", "tests"]
nitpicky = True

myst_heading_anchors = 3

# API pages are made of the signatures and docstrings of the installed package.
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "both"
autodoc_typehints_description_target = "documented"
python_maximum_signature_line_length = 80
add_module_names = False
# Docstrings mark code with single backticks, as Markdown does.
default_role = "code"
napoleon_numpy_docstring = False
# Options that decorators share are sections of their module; parameters that methods share, of their class.
napoleon_custom_sections = [
    ("Resource options", "params_style"),
    ("Handler options", "params_style"),
    ("Filter options", "params_style"),
    ("Admission options", "params_style"),
    ("Background options", "params_style"),
    ("Common parameters", "params_style"),
]
# Types are shown in signatures by the names that the code uses, also those without a page.
nitpick_ignore_regex = [("py:.*", ".*")]
# The type `type` in a signature could also be an attribute of this name.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_title = project
html_copy_source = False
html_show_sphinx = False

# Copy commands without their prompt and their output.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"

# The contents on the side; on disk, the index has links instead.
CONTENTS = {
    "Start": "install quickstart migration",
    "Tutorial": "tutorial/index tutorial/[0-9]*",
    "How-to": "how-to/* deployment dev embedding troubleshooting",
    "Testing": (
        "testing testing/functions testing/time testing/faults testing/admission testing/clients "
        "testing/several-operators testing/asynchronous testing/command-line testing/real-clusters "
        "testing/kit"
    ),
    "Reference": (
        "reference/* handlers reconcilers caches arguments filters resources errors-and-retries "
        "daemons timers subhandlers indexing admission startup-and-exit state-and-finalizers storages "
        "hierarchies events settings commands logging authentication peering probes"
    ),
    "Explanation": "concepts sync-and-async reliability performance alternatives compatibility",
    "Examples": "/examples/README /examples/*/README",
    "The project": (
        "/README /ARCHITECTURE /CONTRIBUTING project/evidence project/reconciler-rules /SECURITY /CHANGELOG"
    ),
}


def add_contents(app, docname, source):
    """Put the contents into the index."""
    if docname == root_doc:
        for caption, names in CONTENTS.items():
            lines = ["```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", "", *names.split(), "```"]
            source[0] += "\n" + "\n".join(lines) + "\n"


def link_folders_to_their_pages(app, docname, source):
    """On the site, a folder of an example is its page."""
    source[0] = re.sub(r"\]\(((?:\.\./)*(?:examples/)?\d\d-[a-z-]+)/?\)", r"](\1/README.md)", source[0])


def name_variables(app):
    """Name the environment variables of options as click does: sphinx-click knows only explicit ones."""
    for name, command in cli.main.commands.items():
        for option in command.params:
            if isinstance(option, click.Option) and not option.envvar and option.allow_from_autoenv:
                option.envvar = f"KOPF_{name}_{option.name}".replace("-", "_").upper()


def escape_help_texts(app, context, lines):
    """Help texts are plain texts: an asterisk, as in `team-*`, is no markup. Formats are their values."""
    for number, line in enumerate(lines):
        text = re.sub(r"\bLogFormat\.(\w+)", lambda found: found[1].lower(), line.replace("*", r"\*"))
        # Two hyphens would become a dash.
        is_help = not text.startswith(".. option::")
        lines[number] = re.sub(r"(?<=\s)(--[\w-]+(?:=\w+)?)", r"``\1``", text) if is_help else text


attribute_docs = {}


def keep_attribute_docs(app, what, name, obj, options, lines):
    """Napoleon would take a text before a colon in the first line as the type of the attribute."""
    if what in ("attribute", "data", "property"):
        attribute_docs[name] = list(lines)


def restore_attribute_docs(app, what, name, obj, options, lines):
    """Undo the change by napoleon."""
    lines[:] = attribute_docs.pop(name, lines)


def describe_aliases(app, what, name, obj, options, lines):
    """Aliases and constants have the docstrings of their assignments, not those of their classes."""
    if what == "data":
        short = name.rpartition(".")[2]
        analyzer = ModuleAnalyzer.for_module(kopf._MODULES_BY_NAME[short])
        lines[:] = analyzer.find_attr_docs()["", short]


def describe_page(app, pagename, templatename, context, doctree):
    """Give each page a description for search engines: its first paragraph after the prerequisites."""
    paragraphs = [found.astext() for found in doctree.findall(nodes.paragraph)] if doctree is not None else []
    text = next((it for it in paragraphs if not it.startswith(("You have ", "You need "))), "")
    text = " ".join(text.split())
    if text:
        short = html.escape(textwrap.shorten(text, 160, placeholder="…"), quote=True)
        context["metatags"] = context.get("metatags", "") + f'<meta name="description" content="{short}">\n'


def describe_site(app, exception):
    """Write llms.txt, the list of all pages for language models: https://llmstxt.org."""
    if exception is not None:
        return
    lines = [f"# {project}", "", "> Kubernetes operators as Python functions: Kopf's API on a Rust engine."]
    for caption, names in CONTENTS.items():
        pages = [name if name[0] == "/" else f"/docs/{name}" for name in names.split()]
        found = {
            name: None
            for pattern in pages
            for name in sorted(app.env.found_docs)
            if fnmatch.fnmatch(f"/{name}", pattern)
        }
        lines += ["", f"## {caption}", ""]
        lines += [
            f"- [{app.env.titles[name].astext()}]({app.builder.get_target_uri(name)})" for name in found
        ]
    (pathlib.Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app):
    """Join in while pages are read and written."""
    app.connect("build-finished", describe_site)
    app.connect("builder-inited", name_variables)
    app.connect("autodoc-process-docstring", describe_aliases, priority=300)
    app.connect("autodoc-process-docstring", keep_attribute_docs, priority=400)
    app.connect("autodoc-process-docstring", restore_attribute_docs, priority=600)
    app.connect("html-page-context", describe_page)
    app.connect("sphinx-click-process-options", escape_help_texts)
    app.connect("source-read", add_contents)
    app.connect("source-read", link_folders_to_their_pages)
