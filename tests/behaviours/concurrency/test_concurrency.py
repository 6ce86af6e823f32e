"""Handlers wait only for the concurrency slots that they need."""

import threading

THREADS = 2


def test_functions_that_hold_all_threads_delay_only_their_like(run, make, cluster, handled):
    gate = threading.Event()
    running = run({"gate": gate, "threads": THREADS})
    try:
        slow = [make(f"slow-{number}", labels={"way": "sync"}) for number in range(3 * THREADS)]
        running.until("slow", THREADS)
        # Handlers, their writes, timers and daemons continue, from the creation to the deletion.
        make("quick", labels={"way": "async"})
        handled("quick", lambda body: body.get("status", {}).get("quick") == "done")
        cluster.patch("widgets", "quick", {"spec": {"size": 2}})
        running.until("again")
        handled("quick")
        running.until("tick", len(running.of("tick")) + 3)
        cluster.delete("widgets", "quick")
        cluster.wait_until_gone("widgets", "quick")
        running.until("guard", 2)
        assert len(running.of("slow")) == THREADS
    finally:
        gate.set()
    for body in slow:
        handled(body["metadata"]["name"])
    assert sorted(running.of("slow")) == sorted(body["metadata"]["name"] for body in slow)
