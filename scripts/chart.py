"""Draw the bar chart of README.md from the table of docs/performance.md.

Usage: python scripts/chart.py [--check]

With --check, nothing is written; the exit code is 1 if the image is not the one of the table.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/performance.md"
IMAGE = ROOT / "docs/images/cpu.svg"
MEASURE = "creation handler with a result, per object"
OURS = "kopf-rs"

WIDTH, BAR, GAP, LEFT, TOP = 680, 26, 10, 150, 44
LONGEST = 420  # pixels of the longest bar


def figures_of(page: str) -> dict[str, float]:
    """The CPU milliseconds of each program, the slowest first."""
    [head] = re.findall(r"^\| measure \|(.*)\|$", page, re.M)
    [row] = re.findall(rf"^\| {re.escape(MEASURE)} \|(.*)\|$", page, re.M)
    names = [cell.strip() for cell in head.split("|")]
    values = [float(cell.strip(" *").removesuffix(" ms")) for cell in row.split("|")]
    return dict(sorted(zip(names, values, strict=True), key=lambda pair: -pair[1]))


def date_of(page: str) -> str:
    """The date of the measurement, as the page states it."""
    [found] = re.findall(r"Measured on (\d+ \w+ \d{4})", page)
    return str(found)


def draw(figures: dict[str, float], date: str) -> str:
    """The chart as SVG; the text has a colour that is legible on light and on dark pages."""
    height = TOP + len(figures) * (BAR + GAP) + 24
    longest = max(figures.values())
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        ' role="img" font-family="sans-serif" font-size="14" fill="#7d8590">',
        f"  <title>CPU time of an operator per created object, measured on {date}</title>",
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
            f'  <text x="{LEFT + length + 8}" y="{middle}"{weight}>{value:.2f} ms</text>',
        ]
    foot = f"Measured on {date}, before the last changes; see docs/performance.md."
    lines.append(f'  <text x="0" y="{height - 6}" font-size="11">{foot}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> int:
    """Write the image, or compare it."""
    page = PAGE.read_text()
    image = draw(figures_of(page), date_of(page))
    if "--check" not in sys.argv:
        IMAGE.write_text(image)
    elif not IMAGE.exists() or IMAGE.read_text() != image:
        print(f"{IMAGE.relative_to(ROOT)} is stale. Run: python scripts/chart.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
