"""The steps of the flows in which the embedded API server differs from a real one, with the reasons."""

from __future__ import annotations

MANAGED_FIELDS = (
    "the fields of an entry of another version are not converted to its version before they are compared"
)
ADMISSION = {
    "replicas that a custom object does not have are -2147483648 in its old scale": [
        "scale a custom object",
    ],
    "a scale has no version after a mutation": ["mutate a scale"],
    "validating webhooks are not called if the pod of an eviction does not exist": ["evict no pod"],
    "the rules of a role are a list even if it has none": ["create a role"],
    "a mutated object of a built-in kind is decoded as the kind that it has, and its kind is not restored": [
        "configmaps: change the kind at a creation",
        "configmaps: change the kind at an update",
        "configmaps: remove the kind at a creation",
        "configmaps: remove the kind at an update",
    ],
    "a request keeps its name if a webhook changes that of the object": [
        "configmaps: change the name at a creation",
    ],
    "the order of the keys of an object in an error": ["gadgets: remove the kind at an update"],
    "a webhook is called again although the mutated object has another version": [
        "gadgets: change the version at a creation",
        "gadgets: change the version at an update",
    ],
    "metadata of a wrong type is rejected before the next webhook": [
        "gadgets: set wrong labels at a creation"
    ],
    "nulls that a webhook adds are validated": ["gadgets: set a null at a creation"],
    "a webhook is called again after another one, although that one has changed nothing": [
        "reinvoke nothing"
    ],
    "the texts of the JSON decoder of Go": [
        "patch of mutate: half of base64",
        "patch of mutate: a patch that is plain",
    ],
    "metadata in the status of a denial is returned": [
        "mutate denies with metadata",
        "validate denies with metadata",
    ],
}
CONVERSION = {
    MANAGED_FIELDS: [
        "merge in v1",
        "merge in v2",
        "json patch in v1",
        "merge nothing in v1",
        "merge the same in v1",
        "merge a lost field in v1",
        "replace in v1",
        "merge a status in v1",
        "get after all in v2",
        "select in v1",
        "page in v1",
        "apply the same in v1",
        "apply by another in v2",
        "apply a conflict in v2",
        "apply by force in v2",
        "apply by the first in v2",
        "merge after an apply",
        "get the managers in v1",
        "metadata: labels: get",
        "metadata: labels: merge",
        "metadata: annotations: get",
        "metadata: annotations: merge",
        "metadata: null labels: get",
        "metadata: null labels: merge",
        "metadata: finalizers: get",
        "metadata: finalizers: merge",
        "metadata: a version: get",
        "metadata: a version: merge",
        "failure: no spec: get",
        "failure: no spec: merge",
        "failure: an invalid object: get",
        "failure: an invalid object: merge",
    ],
    "the order of the keys of an object in an error": [
        "failure: no kind: get",
        "failure: no kind: create",
        "failure: no kind: merge",
    ],
    "an object that a conversion has made invalid is pruned": ["failure: an invalid object: create"],
}
DIFFERENCES = {
    (flow, step): reason
    for flow, reasons in (("admission", ADMISSION), ("conversion", CONVERSION))
    for reason, steps in reasons.items()
    for step in steps
}
"""The reasons by the flow and the step."""
