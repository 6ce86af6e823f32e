"""`make soak`: one operator under a mixed load and random faults for an hour; checks for leaks and
lost changes.

    python -m scripts.soak --minutes 60 --seed 1

The embedded API server runs in this process, the operator (`soak_operator.py`) in another one.
"""

import argparse
import base64
import contextlib
import os
import pathlib
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from kopf.testing import ApiError, Cluster

from scripts import trials
from scripts.trials import LAST, PREFIX, make_crd

HERE = pathlib.Path(__file__).parent
POPULATION = 150
PACE = 0.05
SAMPLING = 10.0
CONVERGENCE = 120.0

# How much the median of the last third may be above that of the first third, both after the warm-up.
LIMITS: dict[str, Callable[[float], float]] = {
    "rss MB": lambda before: 0.05 * before + 2,
    "threads": lambda _: 5,
    "descriptors": lambda _: 10,
    "sockets": lambda _: 10,
    "python tasks": lambda _: 30,
    "python objects": lambda before: 0.05 * before,
    "memos too many": lambda _: 3,
}


class Load:
    """Objects that come, change and go."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.expected: dict[str, int] = {}
        self.changes = self.count = 0

    def act(self) -> None:
        names, self.changes = list(self.expected), self.changes + 1
        luck = self.chance.random()
        if not names or (luck < 0.1 and len(names) < POPULATION):
            return self.create()
        name = self.chance.choice(names)
        if luck < 0.2 and len(names) > POPULATION / 2:
            del self.expected[name]
            return self.cluster.delete("soaks", name)
        if luck < 0.25:
            return self.change(name, {"metadata": {"labels": {"daemon": self.kind()}}})
        if luck < 0.26:
            ours = [it for it in self.annotations(name) if it.startswith(PREFIX)]
            return self.change(name, {"metadata": {"annotations": dict.fromkeys(ours)}})
        if luck < 0.35:
            return self.change(name, {"status": {"noise": luck}}, "status")
        if luck < 0.4:
            return self.spoil(name)
        self.expected[name] += 1
        return self.change(name, {"spec": {"value": self.expected[name]}})

    def create(self) -> None:
        self.count += 1
        name = f"soak-{self.count}"
        self.expected[name] = 1
        meta = {"name": name, "labels": {"daemon": self.kind()}}
        body = {"apiVersion": "example.com/v1", "kind": "Soak", "metadata": meta}
        self.cluster.create({**body, "spec": {"value": 1, "ballast": "x" * self.chance.randrange(3000)}})

    def kind(self) -> str:
        return self.chance.choice(["async"] * 3 + ["sync"] + ["none"] * 6)

    def change(self, name: str, patch: Any, subresource: str | None = None) -> None:
        self.cluster.patch("soaks", name, patch, subresource=subresource)

    def spoil(self, name: str) -> None:
        """Change or delete a child, as another client."""
        plural, child = self.chance.choice([("configmaps", name), ("secrets", f"{name}-0")])
        with contextlib.suppress(ApiError):  # it may not be there yet
            if self.chance.random() < 0.5:
                self.cluster.delete(plural, child)
            else:
                spoilt = {"value": "c3BvaWx0"} if plural == "secrets" else {"value": "spoilt"}
                self.cluster.patch(plural, child, {"data": spoilt})

    def annotations(self, name: str) -> dict[str, str]:
        return dict(self.cluster.get("soaks", name)["metadata"].get("annotations") or {})

    def unhandled(self) -> list[str]:
        """Objects that are not in the expected state at the end."""
        bodies = {it["metadata"]["name"]: it for it in self.cluster.list("soaks")}
        wrong = [f"{name} should be gone" for name in bodies if name not in self.expected]
        wrong += [f"{name} has vanished" for name in self.expected if name not in bodies]
        for name, value in self.expected.items():
            body = bodies.get(name, {"metadata": {}})
            ours = [it for it in body["metadata"].get("annotations") or {} if it.startswith(PREFIX)]
            status = body.get("status") or {}
            if ours != [LAST] or status.get("first") != value or status.get("second") != {"value": value}:
                wrong.append(f"{name} is not handled at {value}: {ours} {status}")
        children = {it["metadata"]["name"]: it["data"]["value"] for it in self.cluster.list("configmaps")}
        expected = {name: str(value) for name, value in self.expected.items()}
        wrong += [f"the child {name}: {value}" for name, value in children.items() ^ expected.items()]
        secrets = {it["metadata"]["name"]: it["data"]["value"] for it in self.cluster.list("secrets")}
        expected = {
            f"{name}-{number}": base64.b64encode(str(value).encode()).decode()
            for name, value in self.expected.items()
            for number in range(1 + value % 2)
        }
        wrong += [f"the child {name}: {value}" for name, value in secrets.items() ^ expected.items()]
        return wrong


class Faults:
    """One after another, with pauses in between."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster, self.chance = cluster, chance
        self.until, self.lasts, self.count = time.monotonic() + 10, False, 0

    def act(self) -> None:
        if time.monotonic() < self.until:
            return
        self.lasts = not self.lasts
        self.until = time.monotonic() + self.chance.uniform(0.5, 4) * (1 if self.lasts else 3)
        self.cluster.clear_faults()
        if self.lasts:
            self.count += 1
            self.chance.choice(self.all())()

    def all(self) -> list[Callable[[], Any]]:
        cluster, inject = self.cluster, self.cluster.inject
        verbs = ["", "watch", "list", "patch"]

        def cut_and(*args: Any, **options: Any) -> None:
            inject(*args, **options)
            cluster.drop_watches()

        def expire() -> None:
            cluster.compact()
            cut_and("gone", times=2)

        return [
            lambda: inject("code", 500, verb=self.chance.choice(verbs)),
            lambda: cut_and("code", 503),
            lambda: cut_and("code", 403, verb="watch", resource="soaks"),
            lambda: cut_and("too-many-requests", 1),
            lambda: inject("code", 422, verb="patch", resource="soaks", times=10),
            lambda: inject("conflict", verb="patch"),
            lambda: inject("reset", verb=self.chance.choice(verbs)),
            lambda: inject("lost", verb="patch", times=20),
            lambda: inject("latency", 1, verb=self.chance.choice(verbs)),
            lambda: inject("silence"),
            cluster.drop_watches,
            cluster.disconnect_clients,
            expire,
        ]


class OperatorProcess(trials.OperatorProcess):
    """The process of the operator, and what is looked at in it."""

    def sample(self, objects: int) -> dict[str, float]:
        links = []
        for link in (self.place / "fd").iterdir():
            try:
                links.append(os.readlink(link))
            except OSError:  # closed meanwhile
                continue
        state = self.ask()
        return {
            "rss MB": self.status("VmRSS") / 1024,
            "threads": self.status("Threads"),
            "descriptors": len(links),
            "sockets": sum(it.startswith("socket:") for it in links),
            "python tasks": state["python tasks"],
            "python objects": state["python objects"],
            "objects": objects,
            "memos too many": max(0, state["memos"] - objects),
            "daemons": sum(state["daemons"].values()),
            "calls": sum(state["calls"].values()),
        }


def grown(samples: list[dict[str, float]]) -> list[str]:
    """The measurements that grow."""
    wrong, third = [], max(1, len(samples) // 3)
    for name, limit in LIMITS.items():
        before = statistics.median(it[name] for it in samples[:third])
        after = statistics.median(it[name] for it in samples[-third:])
        print(f"{name:16} {before:10.1f} -> {after:10.1f}   (may grow by {limit(before):.1f})")
        if after - before > limit(before):
            wrong.append(f"{name} has grown from {before:.1f} to {after:.1f}")
    return wrong


def leaks(state: dict[str, Any], load: Load, bodies: list[Any]) -> list[str]:
    """Leaked state of deleted objects, and missing state of existing ones."""
    labelled = {"async", "sync"}
    manned = {it["metadata"]["name"] for it in bodies if it["metadata"]["labels"].get("daemon") in labelled}
    daemons, indexed = state["daemons"], set(state["indexed"])
    wrong = [f"daemon of {name}: {daemons.get(name, 0)}" for name in manned ^ set(daemons)]
    wrong += [f"{count} daemons of {name}" for name, count in daemons.items() if count > 1]
    wrong += [f"index entry of {name}" for name in indexed ^ set(load.expected)]
    values = {name: str(value) for name, value in load.expected.items()}
    wrong += [f"the cached child {name}: {value}" for name, value in state["cached"].items() ^ values.items()]
    if state["keys"] != dict(Counter(values.values())):
        wrong.append(f"the keys of the cache: {state['keys']}")
    if state["memos"] > len(load.expected):
        wrong.append(f"{state['memos']} memos of {len(load.expected)} objects")
    for name, value in load.expected.items():
        for handler in ("first", "second", "parent", "field", "reconciled", "mirrored"):
            if (last := state["seen"].get(name, {}).get(handler)) != value:
                wrong.append(f"{handler} has seen {name} at {last}, not at {value}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SOAK_MINUTES", "60")))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--log", type=pathlib.Path, default=pathlib.Path("soak.log"))
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"{options.minutes} minutes, seed {options.seed}")
    samples: list[dict[str, float]] = []
    with Cluster() as cluster:
        cluster.apply(make_crd("Soak", status=True))
        operator = OperatorProcess(
            [str(HERE / "soak_operator.py")], cluster.kubeconfig, options.log.open("w")
        )
        load, faults = Load(cluster, chance), Faults(cluster, chance)
        while len(load.expected) < POPULATION * 0.75:
            load.create()
        start = sampled = logged = time.monotonic()
        while time.monotonic() < start + options.minutes * 60 and operator.process.poll() is None:
            load.act()
            faults.act()
            time.sleep(PACE)
            if time.monotonic() - sampled > SAMPLING:
                sampled = time.monotonic()
                # Objects that are being deleted have memos, too.
                samples.append(operator.sample(len(cluster.list("soaks"))))
                if sampled - logged > 60:
                    logged = sampled
                    figures = " ".join(f"{name}={value:.0f}" for name, value in samples[-1].items())
                    print(f"{(sampled - start) / 60:5.0f} min: {figures}", flush=True)
        cluster.clear_faults()
        wrong, until = [], time.monotonic() + CONVERGENCE
        while time.monotonic() < until and operator.process.poll() is None:
            with contextlib.suppress(ApiError):
                wrong = load.unhandled() or leaks(operator.ask(), load, cluster.list("soaks"))
            if not wrong:
                break
            time.sleep(1)
        seconds = time.monotonic() - until + CONVERGENCE
        if operator.process.poll() is not None:
            wrong.append(f"the operator has exited: {operator.process.returncode}")
        else:
            code = operator.stop()
            wrong += [f"the operator has ended with {code}"] if code else []
    print(
        f"{load.changes} changes of {load.count} objects, {faults.count} faults; converged in {seconds:.0f} s"
    )
    warm = max(1, len(samples) // 5)
    wrong += grown(samples[warm:]) if len(samples) > warm + 3 else ["too short to judge"]
    print("\n".join(wrong[:50]) or "Nothing has grown, nothing is lost.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
