"""How the site is built: of all pages of the repository, with the links between them as they are on disk.

The root of the sources is the root of the repository: pages refer to examples, and examples to pages.
"""

import fnmatch
import html
import pathlib
import re
import textwrap

from docutils import nodes

project = "Kopf with a Rust core"
copyright = "the authors, MIT licence"
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "docs/images/*", "examples/README.md", "examples/*/README.md"]
exclude_patterns = [".git", ".venv", ".venvs", "dist", "python", "rust", "site", "target", "tests"]
nitpicky = True

myst_heading_anchors = 3

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
    app.connect("html-page-context", describe_page)
    app.connect("source-read", add_contents)
    app.connect("source-read", link_folders_to_their_pages)
