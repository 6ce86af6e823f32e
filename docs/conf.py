"""How the documentation is built: from the Markdown files of the whole repository, with links between them.

The root of the sources is the root of the repository, so that pages can refer to examples as they do on disk.
"""

project = "Kopf with a Rust core"
copyright = "the authors, MIT licence"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "examples/*/README.md"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# Links to files that are not pages are links to be downloaded.
html_theme = "furo"
html_title = "Kopf with a Rust core"
html_show_sphinx = False
html_copy_source = False
nitpicky = True
