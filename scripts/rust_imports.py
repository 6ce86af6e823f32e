"""Checks the imports between the modules of the Rust crates.

Two rules, for each crate listed in rust_layers.toml:

- no circle: if a module imports another one, directly or through others, that one does not import it. A
  module and its own submodules may import each other: they share their private items and are read as one
  unit.
- folders import downwards: a module imports from the same top-level module or from those listed after
  it.

The check reads `use` declarations, and paths in the code that start with `crate`, `super`, `self` or the
name of a submodule. A name that a module re-exports counts as an import of the module where it is
defined, so a re-export is no import itself. Tests, comments and strings are left out.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# One after another: comments (line, block), raw strings, strings, characters (not lifetimes).
_OPAQUE = re.compile(
    r'//[^\n]*|/\*.*?\*/|\bb?r(?P<hashes>#*)".*?"(?P=hashes)|'
    r'b?"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\\\'])\'',
    re.S,
)
_TEST = re.compile(
    r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*(?P<end>[;{])"
)
_USE = re.compile(r"(?P<public>\bpub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);")
_MODULE = re.compile(r"\bmod\s+(\w+)\s*;")
_PATH = re.compile(r"(?<![\w:$])((?:\w+\s*::\s*)+\w+)")

Module = tuple[str, ...]


class Source(NamedTuple):
    """What one file imports, as paths from the crate's root."""

    file: Path
    imports: set[Module]
    exports: dict[str, Module]
    """Re-exported names (`*` for all names of some modules: these are listed in `globs`)."""
    globs: set[Module]


def violations(crate: str, source: Path, order: list[str], *, files: int) -> list[str]:
    """The broken rules of one crate, as sentences.

    Args:
        crate: The name of the crate, for the sentences.
        source: The folder with its `lib.rs`.
        order: Its top-level modules from above to below.
        files: So many files are expected at least.
    """
    sources = dict(_read(source))
    found = []
    if len(sources) < files:
        found.append(f"{crate}: only {len(sources)} files found in {source}, of {files} at least")
    graph = {module: _targets(module, sources) for module in sources}
    apart = {module: {target for target in graph[module] if not _are_kin(module, target)} for module in graph}
    tops = {module[0] for module in sources if module}
    found += [f"{crate}: {name} is missing in the order of modules" for name in sorted(tops - set(order))]
    found += [
        f"{crate}: {name} is in the order of modules, but there is none" for name in order if name not in tops
    ]
    rank = {name: index for index, name in enumerate(order)}
    for module, targets in sorted(graph.items()):
        for target in sorted(targets):
            if not module or not target or target[0] == module[0]:
                continue
            if rank.get(target[0], len(order)) < rank.get(module[0], 0):
                found.append(f"{crate}: {_name(module)} imports {_name(target)}, which is above it")
    found += [f"{crate}: circle of {', '.join(map(_name, circle))}" for circle in _circles(apart)]
    return found


def _read(source: Path) -> Iterator[tuple[Module, Source]]:
    pending: list[tuple[Module, Path]] = [((), source / "lib.rs")]
    while pending:
        module, file = pending.pop()
        text = _code(file.read_text())
        folder = file.parent if file.name in ("lib.rs", "mod.rs") else file.with_suffix("")
        children = set(_MODULE.findall(text))
        yield module, _imports(module, file, text, children)
        for child in children:
            candidates = [folder / f"{child}.rs", folder / child / "mod.rs"]
            present = [candidate for candidate in candidates if candidate.exists()]
            if not present:
                raise SystemExit(f"{file}: no file of the module {child}")
            pending.append(((*module, child), present[0]))


def _code(text: str) -> str:
    """Without comments, strings and tests."""
    text = _OPAQUE.sub(" ", text)
    while test := _TEST.search(text):
        end = test.end()
        if test["end"] == "{":
            depth = 1
            while depth and end < len(text):
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
        text = text[: test.start()] + text[end:]
    return text


def _imports(module: Module, file: Path, text: str, children: set[str]) -> Source:
    read = Source(file, set(), {}, set())
    for use in _USE.finditer(text):
        for path, name in _leaves(use["tree"]):
            absolute = _absolute(module, path, children)
            if absolute is None:
                continue
            if not use["public"]:
                read.imports.add(absolute)
            elif name == "*":
                read.globs.add(absolute)
            else:
                read.exports[name] = absolute
    for path in _PATH.findall(_USE.sub(" ", text)):
        absolute = _absolute(module, tuple(part.strip() for part in path.split("::")), children)
        if absolute is not None:
            read.imports.add(absolute)
    return read


def _leaves(tree: str) -> Iterator[tuple[Module, str]]:
    """The paths of a `use` declaration, each with the name that it brings into scope."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    prefix = tuple(part for part in re.split(r"\s*::\s*", head.strip()) if part)
    if not brace:
        *parts, last = prefix
        last, _, alias = (part.strip() for part in last.partition(" as "))
        path = (*parts, last) if last not in ("self", "*") or not parts else tuple(parts)
        yield path, alias or (last if last != "self" else path[-1])
        return
    depth, start = 0, 0
    rest = rest.rstrip()[:-1] + ","
    for index, char in enumerate(rest):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and not depth:
            if item := rest[start:index].strip():
                for path, name in _leaves("::".join((*prefix, item))):
                    yield path, name
            start = index + 1


def _absolute(module: Module, path: Module, children: set[str]) -> Module | None:
    if path[0] == "crate":
        return path[1:]
    if path[0] == "self":
        return (*module, *path[1:])
    if path[0] in children:
        return (*module, *path)
    base = module
    while path and path[0] == "super":
        if not base:
            return None
        base, path = base[:-1], path[1:]
        if not path or path[0] != "super":
            return (*base, *path)
    return None


def _targets(module: Module, sources: dict[Module, Source]) -> set[Module]:
    targets = set()
    for path in sources[module].imports:
        target = _defining(path, sources, set())
        if target and target != module:
            targets.add(target)
    return targets


def _defining(path: Module, sources: dict[Module, Source], passed: set[Module]) -> Module:
    """The module in which a path ends, behind all re-exports."""
    if path in passed:
        return ()
    passed.add(path)
    module: Module = ()
    for index, name in enumerate(path):
        if (*module, name) in sources:
            module = (*module, name)
            continue
        source = sources[module]
        if name in source.exports:
            return _defining((*source.exports[name], *path[index + 1 :]), sources, passed)
        for glob in source.globs:
            if (found := _defining((*glob, *path[index:]), sources, passed)) != glob:
                return found
        return module
    return module


def _are_kin(one: Module, other: Module) -> bool:
    """If one of the modules contains the other one."""
    common = min(len(one), len(other))
    return one[:common] == other[:common]


def _circles(graph: dict[Module, set[Module]]) -> Iterator[list[Module]]:
    """The strongly connected components of more than one module (Tarjan)."""
    index: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []

    def visit(module: Module) -> Iterator[list[Module]]:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(graph[module]):
            if target not in index:
                yield from visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            component = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(component) > 1:
                yield sorted(component)

    for module in sorted(graph):
        if module not in index:
            yield from visit(module)


def _name(module: Module) -> str:
    return "::".join(module) or "the root"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Checks the imports between the modules of the Rust crates.")
    parser.add_argument("--layers", type=Path, default=Path(__file__).with_name("rust_layers.toml"))
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).parents[1], help="the root of the repository"
    )
    parser.add_argument("crates", nargs="*", help="only these crates")
    options = parser.parse_args(arguments)
    crates = tomllib.loads(options.layers.read_text())
    found = []
    for crate in options.crates or crates:
        table = crates[crate]
        found += violations(crate, options.root / table["source"], table["order"], files=table["files"])
    for violation in found:
        print(violation, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
