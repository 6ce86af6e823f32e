"""The steps of the flows in which the embedded API server differs from a real one, with the reasons."""

from __future__ import annotations

ADMISSION = {
    "the rules of a role are a list even if it has none": ["create a role"],
    "a mutated object of a built-in kind is decoded as the kind that it has, and its kind is not restored": [
        "configmaps: change the kind at a creation",
        "configmaps: change the kind at an update",
        "configmaps: remove the kind at a creation",
        "configmaps: remove the kind at an update",
    ],
    "the resource version of an object in an error": ["gadgets: remove the kind at an update"],
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
    "an error has the converted object as the webhook has written it": [
        "failure: no kind: get",
        "failure: no kind: create",
        "failure: no kind: merge",
    ],
}
DIFFERENCES = {
    (flow, step): reason
    for flow, reasons in (("admission", ADMISSION), ("conversion", CONVERSION))
    for reason, steps in reasons.items()
    for step in steps
}
"""The reasons by the flow and the step."""
