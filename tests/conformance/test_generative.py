"""The generated conformance corpus: its CRDs, their sample objects and their requests."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.generative.crds import CASES, CrdCase
from tests.conformance.generative.crds.schemas import f, mapping, sample_of, schema_of
from tests.conformance.generative.crds.variants import conflicts, crd_variants
from tests.conformance.generative.style import DeclaredSchemas, setup
from tests.conformance.generative.variants import variants


def test_there_are_at_least_a_hundred_crds_with_different_names():
    assert len(CASES) >= 100
    for member in ("plural", "kind"):
        names = Counter((c.crd["spec"]["group"], c.crd["spec"]["names"][member]) for c in CASES)
        assert set(names.values()) == {1}
    assert len({request.label for request in setup()}) == len(CASES) + 1


@pytest.mark.parametrize("case", CASES[::10], ids=lambda case: case.crd["metadata"]["name"])
def test_cases_have_samples_variants_and_rivals(case: CrdCase):
    assert case.samples
    schemas = DeclaredSchemas(case.crd)
    first = [label for label, _ in variants(case.samples[0], schemas, count=5)]
    assert first == [label for label, _ in variants(case.samples[0], schemas, count=5)]
    changed = dict(crd_variants(case.crd))
    assert len(changed) > 100
    assert all(crd != case.crd for label, crd in changed.items() if "empty names" not in label)
    assert len(dict(conflicts(case.crd))) == 10


def test_schemas_and_samples_come_from_annotated_samples():
    annotated = {
        "name!": f("a", maxLength=3, rules=[("self != ''", "empty")]),
        "labels": mapping({"x": 1}),
        "ports?": f([{"port!": 80}], keys=["port"]),
    }
    assert schema_of(annotated) == {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {
                "type": "string",
                "maxLength": 3,
                "x-kubernetes-validations": [{"rule": "self != ''", "message": "empty"}],
            },
            "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
            "ports": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["port"],
                    "properties": {"port": {"type": "integer"}},
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port"],
            },
        },
    }
    assert sample_of(annotated) == {"name": "a", "labels": {"x": 1}}
    assert sample_of(annotated, minimal=True) == {"name": "a"}
