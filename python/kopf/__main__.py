"""The entry point of `python -m kopf`, and of the `kopf` command, which is the same.

`--version` is answered without loading the command line.
"""

from __future__ import annotations

import sys

import kopf


def main() -> int | None:
    """Run the command of the arguments."""
    if sys.argv[1:] == ["--version"]:
        print(f"kopf, version {kopf.__version__}")
        return 0
    from kopf._cli.process import run_command

    return run_command()


if __name__ == "__main__":
    sys.exit(main())
