"""The command line: its commands, and the controls for their callers, such as tests."""

from kopf._cli.commands import cluster, develop, freeze, main, resume, run
from kopf._cli.options import CLIControls, LogFormatParamType, logging_options

__all__ = [
    "CLIControls",
    "LogFormatParamType",
    "cluster",
    "develop",
    "freeze",
    "logging_options",
    "main",
    "resume",
    "run",
]
