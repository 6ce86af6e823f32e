"""Process of a command: garbage collection at its start, and the error report at its end."""

from __future__ import annotations

from kopf._cli import gc_tuning

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in `typing`, which is not loaded for that
    from collections.abc import Callable
    from typing import Any


def run_command(credentials: Callable[[], Any] = lambda: None, *, is_complete: bool = False) -> int | None:
    """Run the command of the arguments as the purpose of this process, and report the error it ends with.

    The credentials are the only ones that operators use; without them, they are what login handlers return.
    If the arguments are complete, none are read from `pyproject.toml`.
    """
    gc_tuning.disable_gc()
    from kopf._cli import commands
    from kopf._cli.options import CLIControls

    controls = CLIControls(is_process=True, is_complete=is_complete)
    try:
        controls.vault = credentials()
        code: int | None = commands.main(prog_name="kopf", obj=controls)
    except Exception as error:
        from kopf._intents import compatibility

        if compatibility.of_environment().raises_command_errors:
            raise
        # It is one of the command, not of its options: those are reported already.
        from kopf._cli import error_report

        return error_report.report(error, debug=controls.debug, json=controls.json_logs)
    return code
