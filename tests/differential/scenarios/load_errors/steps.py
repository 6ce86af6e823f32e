"""Files and options that cannot work: exit codes and the kinds of errors."""

from tests.differential.harness.session import Session

WATCH = []
FILES = [
    "import_error",
    "no_resource",
    "contradicting_filters",
    "none_label",
    "too_many",
    "failing_startup",
    "no_such_file",
]
OPTIONS = [
    ("unknown option", ["--no-such-option"], None),
    ("bad priority", ["--priority", "high"], None),
    ("bad log format", ["--log-format", "xml"], None),
    ("both scopes", [], ["-A", "-n", "x"]),
    ("unknown module", ["-m", "no.such.module"], None),
]


def run(s: Session) -> None:
    # In the scenario's folder, a file that cannot be parsed would break linters.
    broken = s.workdir / "syntax_error.py"
    broken.write_text("def broken(:\n")
    for name, file in [("syntax_error", str(broken)), *((name, f"{name}.py") for name in FILES)]:
        s.start(file, wait=False, log_format=None, name=name)
        s.observe_exit(name, name=name)
    for label, args, scope in OPTIONS:
        name = label.replace(" ", "-")
        s.start("handlers.py", wait=False, log_format=None, name=name, args=args, scope=scope)
        s.observe_exit(label, name=name)
