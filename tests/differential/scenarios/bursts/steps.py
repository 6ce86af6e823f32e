"""Rapid changes of several objects: no change is lost. Slow handlers of several objects run concurrently."""

import itertools

from tests.differential.harness.session import Session

CRDS = ["widgets", "gadgets"]
SKIP_SECTIONS = ["traces", "requests", "writes", "logs"]


def run(s: Session) -> None:
    s.start()
    for number in range(5):
        s.create("widgets", f"w{number}", {"n": 0})
    for n in range(1, 26):
        for number in range(5):
            s.patch("widgets", f"w{number}", {"spec": {"n": n}})
    s.settle("after the burst", quiet=1.5)
    for number in range(5):
        calls = s.traces(name=f"w{number}")
        s.observe(
            f"w{number}",
            {
                "created once": sum(call["reason"] == "create" for call in calls) == 1,
                "continuous": all(a["new"] == b["old"] for a, b in itertools.pairwise(calls)),
                "last": calls[-1]["new"]["spec"]["n"],
            },
        )
    for number in range(4):
        s.create("gadgets", f"g{number}", {})
    s.wait_trace("leave", 4)
    order = [call["fn"] for call in s.traces() if call["fn"] in ("enter", "leave")]
    s.observe("all entered before any left", order == ["enter"] * 4 + ["leave"] * 4)
    s.settle("slow ones")
    s.stop()
