"""Three replicas under random kills, stops and partitions; and a leader that is stopped for too long.

On the embedded API server and on a real control plane. A few rounds here; `make replicas` has 200.
`REPLICA_ROUNDS` and `REPLICA_SEED` set their number and the seed.
"""

import os
import random
import signal
import time

import pytest
from replicas import Replica, Replicas

pytestmark = pytest.mark.timeout(3600)
ROUNDS = int(os.environ.get("REPLICA_ROUNDS", "3"))
SEED = int(os.environ.get("REPLICA_SEED", "1"))
NAMES = "abcd"


def test_a_leader_that_was_stopped_for_longer_than_its_lease_writes_nothing_and_stands_by(
    recorded_cluster, tmp_path
):
    """LEA-4, in a handler."""
    with Replicas(recorded_cluster, tmp_path, 2) as replicas:
        first = replicas.wait_for_leader()
        [second] = [replica for replica in replicas.all if replica is not first]
        replicas.create("a", seconds=1)
        replicas.wait(lambda: any(step.what == "begin" for step in replicas.steps), "no handler is called")
        first.signal(signal.SIGSTOP)
        replicas.wait(lambda: replicas.leader is second, "there is no takeover")
        replicas.wait_until_handled()
        before, _ = recorded_cluster.requests_since(0)
        first.signal(signal.SIGCONT)
        replicas.wait(
            lambda: "Standing by for the lease default/parcels-operator again" in first.log, "no loss"
        )
        replicas.change("a", seconds=0)
        replicas.wait_until_handled()
        _, after = recorded_cluster.requests_since(before)
        writes = [it for it in after if it.method != "GET" and it.user == first.identity and it.code < 300]
        assert writes == []
        second.end(signal.SIGKILL)
        replicas.change("a")
        replicas.wait_until_handled()
        assert replicas.leader is first, "it leads again, without a restart"
        assert replicas.violations() == []
        assert (first.starts, recorded_cluster.get("parcels", "a")["status"]["term"]) == (1, 2)


def disturb(rng: random.Random, replica: Replica) -> float:
    """Disturb the replica; how long it lasts."""
    lasting = rng.choice([0.4, 1.0, 2.6, 3.5])
    match rng.choice(["kill", "stop", "sever", "terminate"]):
        case "kill":
            replica.end(signal.SIGKILL)
            replica.start()
            return 0.0
        case "terminate":
            replica.end(signal.SIGTERM)
            replica.start()
            return 0.0
        case "stop":
            replica.signal(signal.SIGSTOP)
        case _:
            replica.link.sever()
    return lasting


def test_replicas_survive_kills_stops_and_partitions(recorded_cluster, tmp_path):
    """LEA-4 and LEA-6 at random moments, and the acceptance of leadership."""
    rng = random.Random(SEED)
    with Replicas(recorded_cluster, tmp_path, 3) as replicas:
        for name in NAMES:
            replicas.create(name)
        for number in range(ROUNDS):
            leader = replicas.wait_for_leader()
            disturbed = {leader if rng.random() < 0.8 else rng.choice(replicas.all)}
            if rng.random() < 0.3:
                disturbed.add(rng.choice(replicas.all))
            chosen = sorted(disturbed, key=lambda replica: replica.label)
            for _ in chosen:
                replicas.change(rng.choice(NAMES), seconds=rng.choice([0, 0.2, 0.5]))
                time.sleep(rng.random() * 0.3)
            until = time.monotonic() + max(disturb(rng, replica) for replica in chosen)
            while time.monotonic() < until:
                replicas.change(rng.choice(NAMES), seconds=rng.choice([0, 0.2, 0.5]))
                time.sleep(0.1)
            for replica in replicas.all:
                replica.signal(signal.SIGCONT)
                replica.link.mend()
                replica.revive()
            replicas.wait_until_handled()
            if number % 20 == 0 or number == ROUNDS - 1:
                assert replicas.violations() == [], f"round {number} of seed {SEED}\n{replicas.logs}"
        terms = {step.term for step in replicas.steps}
        assert len(terms) > ROUNDS // 3, "the rounds had an effect"
