"""Set the public address of the repository, once there is one.

Usage: python scripts/address.py https://github.com/OWNER/kopf-rs

It replaces the address in pyproject.toml and Cargo.toml, and makes the relative links of README.md absolute:
package registries show that file without the repository. Until then, the address is one that is reserved for
documentation.
"""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILES = ("pyproject.toml", "Cargo.toml")


def current(root: pathlib.Path = ROOT) -> str:
    """The address as it is now."""
    urls = tomllib.loads((root / "pyproject.toml").read_text())["project"]["urls"]
    return str(urls["Repository"])


def replace(address: str, root: pathlib.Path = ROOT) -> None:
    """Write the address into all files."""
    before = current(root)
    for name in FILES:
        path = root / name
        path.write_text(path.read_text().replace(before, address))
    readme = root / "README.md"
    readme.write_text(with_absolute_links(readme.read_text().replace(before, address), address))


def with_absolute_links(text: str, address: str) -> str:
    """The Markdown, with links to files of the repository by its address."""

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match[1].endswith(".svg") else "blob"
        return f"]({address}/{kind}/main/{match[1]})"

    return re.sub(r"\]\((?!https?://|#)([^)\s]+)\)", absolute, text)


def main() -> int:
    """Replace, or explain."""
    if len(sys.argv) != 2 or not re.fullmatch(r"https://[^/\s]+/\S*[^/\s]", sys.argv[1]):
        print(__doc__, file=sys.stderr)
        return 2
    replace(sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
