"""Metrics: the format of an exposition, the tables of the documentation, the selectors of expressions."""

import pathlib
import re

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAGES = ("probes.md", "reconcilers.md", "caches.md", "how-to/replicas.md")
FAMILY = re.compile(r"# HELP (?P<name>[a-z_]+) \S.*\n# TYPE (?P=name) (?P<kind>counter|gauge|histogram)\n")
SUFFIXES = ("_bucket", "_sum", "_count")
LABEL = r'[a-z]+="[^"\n]*"'
SAMPLE = re.compile(rf"(?P<name>[a-z_]+)(\{{(?P<labels>{LABEL}(,{LABEL})*)\}})? (?P<value>\S+)\n")
NAME = re.compile(r"\b(?:kopf|rest_client|process|leader_election)_[a-z_]+\b")
SELECTOR = re.compile(rf"(?P<name>{NAME.pattern})\{{(?P<matchers>[^}}]*)\}}")
MATCHER = re.compile(r'([a-z_]+)(?:=~|=|!=|!~)"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")

# What Prometheus adds to the samples of a target, with the labels of `kopf manifests --monitor`.
OF_TARGETS = {"job", "instance", "namespace", "pod"}

Families = dict[str, list[tuple[str, float]]]


def parse(text: str) -> Families:
    """The samples of each family: their labels and values. Everything must be in the text format 0.0.4."""
    families: Families = {}
    position = 0
    while position < len(text):
        family = FAMILY.match(text, position)
        assert family, text[position : position + 200]
        name = family["name"]
        assert name not in families, f"{name} occurs twice"
        assert name.endswith("_total") == (family["kind"] == "counter"), name
        families[name], position, series = [], family.end(), []
        while (sample := SAMPLE.match(text, position)) and not text.startswith("#", position):
            suffix = sample["name"].removeprefix(name)
            assert suffix == "" or (family["kind"] == "histogram" and suffix in SUFFIXES), sample["name"]
            families[name].append((sample["labels"] or "", float(sample["value"])))
            series.append((sample["name"], sample["labels"]))
            position = sample.end()
        assert len(series) == len(set(series)), name
    return families


def labels_of(families: Families) -> dict[str, set[str]]:
    """The names of the labels of each family that has samples, without that of buckets."""
    found = {}
    for name, samples in families.items():
        names = [set(re.findall(r'([a-z]+)="', labels)) - {"le"} for labels, _ in samples]
        if names:
            assert all(one == names[0] for one in names), name
            found[name] = names[0]
    return found


def documented(*pages: str) -> dict[str, set[str]]:
    """The names of the labels of each metric in the tables of these pages, or of all pages."""
    found: dict[str, set[str]] = {}
    for page in pages or PAGES:
        text = (DOCS / page).read_text()
        rows = re.findall(r"^\| (`[a-z_`, ]+`) \|([a-z`, ]*)\| ", text, re.MULTILINE)
        metrics = {name: labels for row, labels in rows for name in NAME.findall(row)}
        assert metrics, page
        assert not metrics.keys() & found.keys(), page
        found |= {name: set(re.findall(r"`([a-z]+)`", labels)) for name, labels in metrics.items()}
    return found


def selectors(expression: str) -> list[tuple[str, str, set[str]]]:
    """The selectors of an expression: each as it is, the name of its metric, and those of its labels."""
    found = [
        (selector[0], re.sub("_bucket$", "", selector["name"]), set(MATCHER.findall(selector["matchers"])))
        for selector in SELECTOR.finditer(expression)
    ]
    assert len(found) == len(NAME.findall(expression)) > 0, expression
    return found


def check_labels(expression: str, labels: dict[str, set[str]]) -> None:
    """Check that each metric of the expression exists, and has the labels that the expression names."""
    available = set()
    for selector, name, matched in selectors(expression):
        assert name in labels, f"{name} does not exist: {expression}"
        buckets = {"le"} if f"{name}_bucket" in selector else set()
        own = labels[name] | buckets | OF_TARGETS
        assert matched <= own, f"{name} has no label {matched - own}: {expression}"
        available |= own
    for grouping in GROUPING.findall(expression):
        names = set(re.findall(r"[a-z_]+", grouping))
        assert names <= available, f"there is no label {names - available}: {expression}"
