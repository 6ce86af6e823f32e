"""The entry point of `python -m kopf`, and of the `kopf` command, which is the same.

The version is what scripts and images ask for: it is told without loading anything.
"""

from __future__ import annotations

import sys

import kopf


def main() -> int | None:
    """Run the command of the arguments."""
    if sys.argv[1:] == ["--version"]:
        print(f"kopf, version {kopf.__version__}")
        return 0
    from kopf._kits import sweeping

    sweeping.pause()
    from kopf import cli

    code: int | None = cli.main()
    return code


if __name__ == "__main__":
    sys.exit(main())
