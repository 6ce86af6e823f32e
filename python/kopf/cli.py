"""The command line: its commands, and the controls for their callers, such as tests."""

from kopf._cli.commands import cluster, develop, freeze, main, resume, run
from kopf._cli.options import CLIControls, LogFormatParamType, logging_options
from kopf._cli.project_commands import check, completion, init

__all__ = [
    "CLIControls",
    "LogFormatParamType",
    "check",
    "cluster",
    "completion",
    "develop",
    "freeze",
    "init",
    "logging_options",
    "main",
    "resume",
    "run",
]
