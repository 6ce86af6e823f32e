"""Write the figures of docs/figures.json into README.md, docs/performance.md and the chart.

Usage: python -m scripts.figures [--check]
       python -m scripts.figures --results FILE --date '1 January 2027' --version 'version 0.1.0'

The second form first replaces the figures by those of a run of the benchmarks (`benches/run.py --json FILE`);
`make figures` does both. With --check, nothing is written; the exit code is 1 if a file is stale.
"""

import argparse
import json
import pathlib
import re
import sys
from typing import Any

from scripts import address

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = ROOT / "docs/figures.json"
README = ROOT / "README.md"
PAGE = ROOT / "docs/performance.md"
IMAGE = ROOT / "docs/images/cpu.svg"

OURS = "kopf-rs"
PROGRAMS = {  # by their names in the benchmarks
    "reference": "Kopf 1.45",
    "kube-rs": "kube-rs",
    "controller-runtime": "controller-runtime",
    "ours": OURS,
}
CHARTED = "creation handler with a result, per object"
# The chart has only programs that `make figures` measures by itself.
CHARTED_PROGRAMS = ("Kopf 1.45", OURS)
BLOCK = re.compile(r"(<!-- figures.*? -->\n).*?(<!-- end of the figures -->\n)", re.S)

WIDTH, BAR, GAP, LEFT, TOP = 680, 26, 10, 150, 44
LONGEST = 420  # pixels of the longest bar


def show(value: float | None, unit: str) -> str:
    """The figure with its unit, as in tables and in the chart."""
    if value is None:
        return "-"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def charted(data: dict[str, Any]) -> tuple[dict[str, float], str]:
    """The figures of the chart, the greatest first, and their unit."""
    [row] = [row for row in data["rows"] if row["measure"] == CHARTED]
    values = {name: row["values"].get(name) for name in CHARTED_PROGRAMS}
    known = {name: value for name, value in values.items() if value is not None}
    return dict(sorted(known.items(), key=lambda pair: -pair[1])), row["unit"]


def draw(data: dict[str, Any]) -> str:
    """The chart as SVG; the text has a colour that is legible on light and on dark pages."""
    figures, unit = charted(data)
    height = TOP + len(figures) * (BAR + GAP) + 24
    longest = max(figures.values())
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        ' role="img" font-family="sans-serif" font-size="14" fill="#7d8590">',
        f"  <title>CPU time of an operator per created object, measured on {data['date']}</title>",
        '  <text x="0" y="20" font-weight="bold">CPU time per created object (less is better)</text>',
    ]
    for number, (name, value) in enumerate(figures.items()):
        y = TOP + number * (BAR + GAP)
        middle = y + BAR / 2 + 5
        colour = "#d97706" if name == OURS else "#94a3b8"
        weight = ' font-weight="bold"' if name == OURS else ""
        length = round(LONGEST * value / longest, 1)
        lines += [
            f'  <text x="{LEFT - 10}" y="{middle}" text-anchor="end"{weight}>{name}</text>',
            f'  <rect x="{LEFT}" y="{y}" width="{length}" height="{BAR}" rx="3" fill="{colour}"/>',
            f'  <text x="{LEFT + length + 8}" y="{middle}"{weight}>{show(value, unit)}</text>',
        ]
    late = ", before the last changes" if data["outdated"] else ""
    foot = f"Measured on {data['date']}{late}; see docs/performance.md."
    lines.append(f'  <text x="0" y="{height - 6}" font-size="11">{foot}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def for_readme(data: dict[str, Any]) -> str:
    """The chart, and a line about its origin."""
    figures, unit = charted(data)
    shown = ", ".join(f"{name} {show(value, unit)}" for name, value in figures.items())
    image = f"![CPU time of an operator per created object: {shown}](docs/images/cpu.svg)"
    origin = f"> Measured on {data['date']} with {data['version']}."
    if data["outdated"]:
        origin += " **Outdated**: later changes are not in it, among them some that cost CPU time;"
        origin += "\n> the figures will be measured again before the first release."
    return f"\n{image}\n\n{origin} [Method and all measures](docs/performance.md).\n\n"


def for_page(data: dict[str, Any]) -> str:
    """The table, and how it was measured."""
    names = list(PROGRAMS.values())
    lines = [f"| measure | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for row in data["rows"]:
        cells = [show(row["values"].get(name), row["unit"]) for name in names]
        cells[-1] = f"**{cells[-1]}**"
        lines.append(f"| {row['measure']} | {' | '.join(cells)} |")
    lines += ["", f"Measured on {data['date']} with {data['version']}: {data['conditions']}."]
    if data["outdated"]:
        lines += ["", f"> **These figures are not those of the current version**: {data['outdated']}."]
    return "\n" + "\n".join(lines) + "\n\n"


def embed(text: str, block: str) -> str:
    """The text with another content of its block."""
    embedded, count = BLOCK.subn(lambda match: match[1] + block + match[2], text)
    if count != 1:
        raise SystemExit("There must be exactly one block between the marks.")
    return embedded


def measured(data: dict[str, Any], results: Any, date: str, version: str) -> dict[str, Any]:
    """The data with the figures of a run; programs that did not take part have none."""
    from benches.harness import tables, targets

    values = {row.title: row.value for row in targets.ROWS}
    rows = [
        row
        | {
            "values": {
                shown: _rounded(values[row["row"]](tables.medians(results, name)))
                for name, shown in PROGRAMS.items()
            }
        }
        for row in data["rows"]
    ]
    return data | {"date": date, "version": version, "outdated": None, "rows": rows}


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--date")
    parser.add_argument("--version")
    options = parser.parse_args()
    data = json.loads(DATA.read_text())
    if options.results is not None:
        if not options.date or not options.version:
            parser.error("--results needs --date and --version")
        data = measured(data, json.loads(options.results.read_text()), options.date, options.version)
        DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    readme, block = README.read_text(), for_readme(data)
    if "/blob/main/docs/" in readme:
        block = address.with_absolute_links(block, address.current())
    files = {
        IMAGE: draw(data),
        README: embed(readme, block),
        PAGE: embed(PAGE.read_text(), for_page(data)),
    }
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if options.check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run python -m scripts.figures.", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(files[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
