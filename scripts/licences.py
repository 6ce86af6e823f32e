"""Writes the licence texts of the crates linked into the extension, which must be distributed with it.

Usage: python scripts/licences.py FILE [TARGET]

Without a target, the crates are those for the platform of this machine.
"""

import collections
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = ("license", "licence", "copying", "notice", "copyright", "unlicense")


def crates(target: str) -> list[dict]:
    """The packages that the extension depends on at run time, for one platform."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    found = json.loads(subprocess.check_output(command, cwd=ROOT, timeout=120))
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    [root] = [id for id, package in packages.items() if package["name"] == "kopf-py"]
    seen, left = {root}, [root]
    while left:
        for dependency in nodes[left.pop()]["deps"]:
            linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if linked and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                left.append(dependency["pkg"])
    return sorted(
        (packages[id] for id in seen if packages[id]["source"] is not None), key=lambda it: it["name"]
    )


def texts_of(package: dict) -> list[str]:
    """The licences and notices in the folder of the package."""
    folder = pathlib.Path(package["manifest_path"]).parent
    paths = [path for path in sorted(folder.iterdir()) if path.name.lower().startswith(NAMES)]
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in paths if path.is_file()]


def host() -> str:
    """The target of this machine."""
    lines = subprocess.check_output(["rustc", "-vV"], text=True, timeout=120).splitlines()
    return next(line.removeprefix("host: ") for line in lines if line.startswith("host: "))


def main(output: str, target: str | None = None) -> None:
    packages = crates(target or host())
    lines = ["The extension of kopf-rs contains code of these crates:", ""]
    users: dict[str, list[str]] = collections.defaultdict(list)
    for package in packages:
        name = f"{package['name']} {package['version']}"
        lines.append(f"  {name}: {package['license']}, {package['repository'] or 'https://crates.io'}")
        for text in texts_of(package):
            users[text].append(name)
    for text, names in sorted(users.items(), key=lambda it: it[1]):
        lines += ["", "-" * 80, ", ".join(names), "-" * 80, "", text]
    pathlib.Path(output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
