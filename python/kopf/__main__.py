"""The entry point of `python -m kopf`, and of the `kopf` command, which is the same.

The version is what scripts and images ask for: it is told without loading anything.
"""

from __future__ import annotations

import os
import sys

import kopf

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in `typing`, which is not loaded for that
    from collections.abc import Callable
    from typing import Any


def main() -> int | None:
    """Run the command of the arguments."""
    if sys.argv[1:] == ["--version"]:
        print(f"kopf, version {kopf.__version__}")
        return 0
    return run_command()


def run_command(credentials: Callable[[], Any] = lambda: None) -> int | None:
    """Run the command of the arguments as the purpose of this process, and report the error it ends with.

    The credentials are the only ones that operators use; without them, they are what login handlers return.
    """
    from kopf._cli import gc_tuning

    gc_tuning.disable_gc()
    from kopf import cli

    controls = cli.CLIControls(is_process=True)
    try:
        controls.vault = credentials()
        code: int | None = cli.main(prog_name="kopf", obj=controls)
    except Exception as error:
        if os.environ.get("KOPF_COMPAT") == "1.45":
            raise
        # It is one of the command, not of its options: those are reported already.
        from kopf._cli import error_report

        return error_report.report(error, debug=controls.debug, json=controls.json_logs)
    return code


if __name__ == "__main__":
    sys.exit(main())
