"""Runs a part of the differential suite: a different one each day, and always the most important scenarios.

    differential_part.py SUITE REFERENCE CANDIDATE [PART]

Must not know what the suite compares: that is the suite's own affair.
"""

import datetime
import os
import pathlib
import subprocess
import sys

#: Where most regressions show.
ALWAYS = ("lifecycle", "temporary_errors")
#: So many days until all have been run; a part takes less than a minute.
PARTS = 6


def choose(names: list[str], part: int) -> list[str]:
    """Choose the scenarios of a part."""
    others = [name for name in sorted(names) if name not in ALWAYS]
    return [name for name in ALWAYS if name in names] + others[part % PARTS :: PARTS]


def main() -> int:
    suite, reference, candidate, *rest = sys.argv[1:]
    part = int(rest[0]) if rest else datetime.datetime.now(datetime.UTC).timetuple().tm_yday
    folder = pathlib.Path(suite)
    names = [path.name for path in (folder / "scenarios").iterdir() if (path / "steps.py").exists()]
    chosen = choose(names, part)
    print(f"Differential suite, part {part % PARTS + 1} of {PARTS}: {', '.join(chosen)}")
    print("(make differential runs all of them)")
    sys.stdout.flush()
    command = [sys.executable, str(folder / "run.py"), "--reference", reference, "--candidate", candidate]
    for name in chosen:
        command += ["--only", name]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([*command, "--quiet-warnings"], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
