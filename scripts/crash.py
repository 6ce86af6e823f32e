"""`make crash`: crash an operator at every point of every scenario, and print a line for each scenario.

    python -m scripts.crash [TITLE...]

The scenarios and the checks are in `tests/faults`.
"""

import logging
import sys
import time

from tests.faults.crash_runs import explore, points
from tests.faults.scenarios import SCENARIOS


def main(titles: list[str]) -> int:
    logging.disable(logging.CRITICAL)
    failures = 0
    for title in titles or SCENARIOS:
        scenario, start, runs = SCENARIOS[title], time.monotonic(), 0
        found, baseline = points(scenario, at_length=True)
        wrong = []
        for point in found:
            for absent in (False, True):
                runs += 1
                wrong += explore(scenario, point, baseline, absent=absent)[0]
        failures += len(wrong)
        seconds = time.monotonic() - start
        print(f"{title}: {len(found)} points, {runs} runs, {len(wrong)} wrong, {seconds:.0f} s", flush=True)
        print("".join(f"  {it}\n" for it in wrong), end="", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
