"""Claims about imports: existing modules, their dependencies, star imports, functions of private modules."""

import asyncio
import importlib
import pickle
import subprocess
import sys

import kopf
from parity_runner import outcome, shown


def fresh(code):
    """The output of a new interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    error = shown(done.stderr.strip().splitlines()[-1:]).split(" (/")[0]
    return [done.returncode, done.stdout.split(), error]


# contract: api 1.1
def claim_modules_that_are_there():
    names = ["kopf", "kopf.on", "kopf.testing", "kopf.cli", "kopf.__main__"]
    return [importlib.import_module(name).__name__ for name in names]


# contract: api 1.1
def claim_modules_that_are_not():
    names = [
        "lifecycles",
        "structs",
        "toolkits",
        "reactor",
        "clients",
        "engines",
        "utilities",
        "storage",
        "config",
    ]
    return [outcome(importlib.import_module, f"kopf.{name}").split(":")[0] for name in names]


# contract: api 1.1
def claim_attributes_of_the_package():
    return [
        fresh("import kopf; print(hasattr(kopf, 'testing'), hasattr(kopf, 'cli'), hasattr(kopf, 'on'))"),
        fresh("import kopf; kopf.nope"),
        fresh("from kopf import nope"),
        fresh("import kopf.testing; print(kopf.testing.KopfRunner.__name__)"),
        fresh("import kopf; print(kopf.on.create.__name__, kopf.lifecycles.asap.__name__)"),
    ]


# contract: api 1.1
def claim_star_imports():
    code = "from kopf import *; print(*sorted(n for n in globals() if not n.startswith('__')))"
    return fresh(code)


# contract: api 1.1
def claim_versions():
    return [
        type(kopf.__version__).__name__,
        type(kopf.__version_tuple__).__name__,
        ".".join(map(str, kopf.__version_tuple__[:3])) == kopf.__version__,
        kopf.__commit_id__ is None or isinstance(kopf.__commit_id__, str),
    ]


def claim_names_of_decorators():
    names = [
        "startup",
        "cleanup",
        "login",
        "probe",
        "validate",
        "mutate",
        "resume",
        "create",
        "update",
        "delete",
    ]
    names += ["field", "index", "event", "daemon", "timer", "subhandler", "register"]
    return [[getattr(kopf.on, name).__name__, getattr(kopf.on, name).__module__] for name in names]


# contract: api 1.1
def claim_commands():
    from kopf import cli

    commands = [cli.run, cli.freeze, cli.resume]
    names = [command.name for command in commands]
    return [cli.main.name, names, type(cli.main).__name__]


def claim_controls_as_text():
    from kopf import cli

    return shown(cli.CLIControls())


# contract: api 3.2
def claim_pickles():
    values = [
        kopf.Memo(a=1),
        kopf.Body({"a": 1}),
        kopf.Patch({"a": 1}),
        kopf.Resource("", "v1", "pods"),
        kopf.ConnectionInfo(server="x"),
        kopf.OperatorSettings().posting,
        kopf.Diff([("add", ("a",), None, 1)]),
        kopf.TemporaryError("x", delay=5),
        kopf.AdmissionError("x", code=5),
        kopf.Reason.CREATE,
        kopf.PRESENT,
        kopf.EVERYTHING,
    ]
    return [outcome(lambda value=value: pickle.loads(pickle.dumps(value)) == value) for value in values] + [
        outcome(lambda: pickle.loads(pickle.dumps(kopf.TemporaryError("x", delay=5))).delay),
        outcome(lambda: pickle.loads(pickle.dumps(kopf.AdmissionError("x", code=5))).code),
    ]


# contract: api 3.4
def claim_functions_are_called_with_the_arguments_of_a_cause():
    from kopf._core.actions.invocation import invoke
    from kopf._core.intents.causes import ActivityCause

    def function(**kwargs):
        return ["function", kwargs]

    async def coroutine(**kwargs):
        return ["coroutine", kwargs]

    cause = ActivityCause(logger="l", indices={"i": "j"}, memo="m", activity="a", settings="s")
    calls = [
        invoke(fn, kwargsrc=source, kwargs={"memo": "other", "x": "y"})
        for fn in (function, coroutine)
        for source in (cause, None)
    ]
    return [asyncio.run(call) for call in calls]
