"""The conditions of a cache, computed from its StatefulSet; without requests."""


def states_of(replicas, workload, before):
    """The conditions with their statuses, the reason and message of all of them, the number of ready nodes.

    `workload` is the StatefulSet; `before` are the conditions until now.
    """
    found = workload.get("status") or {}
    ready = found.get("readyReplicas", 0)
    is_current = found.get("observedGeneration", 0) >= workload["metadata"]["generation"]
    is_updated = is_current and found.get("updatedReplicas", ready) >= replicas
    is_ready = is_updated and ready >= replicas
    # Once it was ready, missing nodes are a failure, not a start.
    was_started = any(kind in before and before[kind].status for kind in ("Ready", "Degraded"))
    is_degraded = not is_ready and is_updated and was_started
    states = {"Ready": is_ready, "Progressing": not is_ready and not is_degraded, "Degraded": is_degraded}
    reason = "AllNodesReady" if is_ready else "NodesNotReady"
    return states, reason, f"{ready} of {replicas} nodes are ready.", ready
