"""The status of a cache, computed from its generation and its StatefulSet; without requests."""

import datetime


def status_of(generation, replicas, workload, before):
    """The new status. `workload` is the StatefulSet, or None; `before` is the status until now."""
    found = (workload or {}).get("status", {})
    ready = found.get("readyReplicas", 0)
    is_current = found.get("observedGeneration", 0) >= (workload or {}).get("metadata", {}).get(
        "generation", 1
    )
    is_updated = is_current and found.get("updatedReplicas", ready) >= replicas
    is_ready = is_updated and ready >= replicas
    reason = "AllNodesReady" if is_ready else "NodesNotReady"
    message = f"{ready} of {replicas} nodes are ready."
    # Once it was ready, missing nodes are a failure, not a start.
    was_ready = any(it["type"] == "Ready" and it["status"] == "True" for it in before.get("conditions", []))
    was_degraded = any(
        it["type"] == "Degraded" and it["status"] == "True" for it in before.get("conditions", [])
    )
    is_degraded = not is_ready and is_updated and (was_ready or was_degraded)
    states = {"Ready": is_ready, "Progressing": not is_ready and not is_degraded, "Degraded": is_degraded}
    return {
        "observedGeneration": generation,
        "readyNodes": ready,
        "conditions": [
            condition(kind, state, reason, message, generation, before) for kind, state in states.items()
        ],
    }


def condition(kind, state, reason, message, generation, before):
    """One condition; the time of its last transition is kept while its status is the same."""
    status = "True" if state else "False"
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    same = [it for it in before.get("conditions", []) if it["type"] == kind and it["status"] == status]
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": same[0]["lastTransitionTime"] if same else now,
    }
