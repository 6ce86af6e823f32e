"""Set the public addresses of the repository and of its documentation, once there are any.

Usage: python scripts/address.py https://github.com/OWNER/kopf-rs [https://OWNER.github.io/kopf-rs/docs]

It replaces the address in pyproject.toml and Cargo.toml, and makes the relative links of README.md absolute:
package registries show that file without the repository. Until then, the address is one that is reserved for
documentation.

The second address is that of the folder `docs` of the site that `make docs` builds; without it, the
documentation is the folder `docs` of the repository. Errors refer to it: kopf/_cli/message_addresses.py.
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


def replace(address: str, root: pathlib.Path = ROOT, *, documentation: str | None = None) -> None:
    """Write the addresses into all files."""
    before = current(root)
    for name in FILES:
        path = root / name
        path.write_text(path.read_text().replace(before, address))
    project = root / "pyproject.toml"
    line = f'Documentation = "{documentation or f"{address}/blob/main/docs"}"'
    project.write_text(re.sub(r"^Documentation = .+$", line, project.read_text(), count=1, flags=re.M))
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
    addresses = sys.argv[1:]
    is_valid = [re.fullmatch(r"https://[^/\s]+/\S*[^/\s]", address) is not None for address in addresses]
    if len(addresses) not in (1, 2) or not all(is_valid):
        print(__doc__, file=sys.stderr)
        return 2
    replace(addresses[0], documentation=addresses[1] if len(addresses) == 2 else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
