"""The generated conformance corpus: its CRDs, their sample objects and their requests."""

from __future__ import annotations

import zlib
from collections import Counter
from contextlib import closing

import pytest
from kopf.testing import Cluster

from tests.conformance.generative.__main__ import RECORDINGS, compare_with, read_recording
from tests.conformance.generative.client import Client
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


def is_about(case: CrdCase, line: dict[str, object]) -> bool:
    """Whether a recorded request is about a CRD, or about its objects; not about all of its group."""
    spec = case.crd["spec"]
    path, label = str(line["path"]), str(line["label"]).removeprefix("create ")
    if line["family"] == "discovery":
        return False
    is_object = path.startswith(f"/apis/{spec['group']}/") and f"/{spec['names']['plural']}" in path
    return is_object or label.startswith(case.crd["metadata"]["name"])


def test_a_sample_of_the_recorded_requests_about_crds_has_equal_answers():
    # Every fourth CRD is changed, and every fifth has conflicts.
    sample = CASES[::40]
    recorded = read_recording(RECORDINGS["style"])
    chosen = [it for it in recorded if it["label"] == "namespace" or any(is_about(c, it) for c in sample)]
    assert len(chosen) > 300
    assert len({it["family"] for it in chosen}) > 10
    with Cluster(access=True) as cluster, closing(Client(cluster.kubeconfig)) as client:
        report = compare_with(client, chosen)
    assert report.is_enough(98, 90), "\n".join([*report.causes, *report.table()])


@pytest.mark.parametrize("corpus", ["policies", "managers"])
def test_the_recorded_requests_of_small_corpora_have_equal_answers(corpus: str):
    recorded = read_recording(RECORDINGS[corpus])
    if corpus == "policies":
        # The label begins with the policy.
        kept = [zlib.crc32(it["label"].partition(":")[0].encode()) % 4 == 0 for it in recorded]
        setup = {"namespace", "limit one", "limit two"}
        recorded = [it for it, is_kept in zip(recorded, kept, strict=True) if is_kept or it["label"] in setup]
    assert len(recorded) > 100
    with Cluster(access=True) as cluster, closing(Client(cluster.kubeconfig)) as client:
        report = compare_with(client, recorded)
    assert report.is_enough(98, 90), "\n".join([*report.causes, *report.table()])
