"""How the site is built: of all pages of the repository, with the links between them as they are on disk.

The root of the sources is the root of the repository: pages refer to examples, and examples to pages.
"""

import re

project = "Kopf with a Rust core"
copyright = "the authors, MIT licence"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "examples/*/README.md"]
exclude_patterns = [".git", ".venv", ".venvs", "dist", "python", "rust", "site", "target", "tests"]
nitpicky = True

myst_heading_anchors = 3

html_theme = "furo"
html_title = project
html_copy_source = False
html_show_sphinx = False

# The contents on the side; on disk, the index has links instead.
CONTENTS = {
    "First steps": "install quickstart walkthrough concepts migration",
    "Handlers": (
        "handlers arguments filters resources errors-and-retries daemons timers subhandlers indexing "
        "admission startup-and-exit"
    ),
    "Objects": "state-and-finalizers storages hierarchies events",
    "Operators": (
        "settings commands logging authentication peering probes deployment embedding testing dev "
        "reliability performance troubleshooting compatibility"
    ),
    "Examples": "/examples/*/README",
    "The project": "/README /ARCHITECTURE /CONTRIBUTING /SECURITY /CHANGELOG",
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


def setup(app):
    """Join in while pages are read."""
    app.connect("source-read", add_contents)
    app.connect("source-read", link_folders_to_their_pages)
