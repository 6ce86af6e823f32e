"""Faults that must affect only their object or resource: undecodable objects, silent watches."""

import json
import time

from tests.faults.cases import case, changes, faulty, meanwhile, on
from tests.faults.fault_harness import GROUP, Harness
from tests.faults.fault_proxy import Asked, FaultAction

CRDS = "customresourcedefinitions"


def nested(levels: int) -> str:
    """A value of so many levels, as text: Python's own encoder does not go so deep."""
    return '{"a":' * levels + "1" + "}" * levels


def poison(levels: int) -> str:
    """An object that no handler can get."""
    metadata = '{"name":"poison","namespace":"default","uid":"poison","resourceVersion":"1"}'
    head = f'"apiVersion":"{GROUP}/v1","kind":"Parcel","metadata":{metadata}'
    return f'{{{head},"spec":{nested(levels)}}}'


def nested_crd(levels: int) -> str:
    """A CRD with so many nested properties."""
    schema = '{"type":"object","properties":{"a":' * levels + '{"type":"object"}' + "}}" * levels
    metadata = '{"name":"deeps.example.org","uid":"deep","resourceVersion":"1"}'
    head = f'"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{metadata}'
    names = '"group":"example.org","names":{"plural":"deeps","kind":"Deep"},"scope":"Namespaced"'
    version = f'{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{schema}}}}}'
    return f'{{{head},"spec":{{{names},"versions":[{version}]}}}}'


@case("watches that are closed at once, for 5 s")
def very_short(harness: Harness) -> None:
    before = len(harness.proxy.asked)
    meanwhile(harness, on("watch", doing=FaultAction(answer=(200, "", {}))), 5, cut=True)
    watches = [asked for _, asked, _ in harness.proxy.asked[before:] if asked.watch]
    assert len(watches) < 100, f"a tight loop: {len(watches)} watches in 5 s"


@case("an object nested 10,000 levels is listed and watched")
def deep_object(harness: Harness) -> None:
    def listed(asked: Asked) -> FaultAction | None:
        if asked.verb != "list" or not asked.path.endswith("/parcels"):
            return None
        parcels = harness.cluster.list("parcels")
        # The watch begins at this version, so that it delivers what happens between the list and the watch.
        version = max(int(parcel["metadata"]["resourceVersion"]) for parcel in parcels)
        metadata = {"resourceVersion": str(version)}
        page = {"apiVersion": f"{GROUP}/v1", "kind": "ParcelList", "metadata": metadata}
        text = json.dumps({**page, "items": [*parcels, "POISON"]}).replace('"POISON"', poison(10_000))
        return FaultAction(answer=(200, text, {"Content-Type": "application/json"}))

    with faulty(harness, listed):
        harness.proxy.cut()
        # The last one comes first; what is expired is listed again.
        expired = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "no"}
        lines = [json.dumps({"type": "ERROR", "object": expired})]
        kinds = ("DELETED", "MODIFIED", "ADDED")
        lines += [f'{{"type":"{kind}","object":{poison(10_000)}}}' for kind in kinds]
        harness.proxy.injected.extend(line.encode() + b"\n" for line in lines)
        changes(harness)
        time.sleep(2)


@case("a CRD with 200 nested properties is watched")
def deeply_nested_crd(harness: Harness) -> None:
    line = f'{{"type":"ADDED","object":{nested_crd(200)}}}\n'

    def watched(asked: Asked) -> FaultAction | None:
        if not asked.watch or CRDS not in asked.path:
            return None
        return FaultAction(answer=(200, line, {"Content-Type": "application/json"}))

    with faulty(harness, watched):
        harness.proxy.cut()
        changes(harness)
        time.sleep(2)
