"""Runs the claims of one file under any interpreter, and prints the result of each as JSON.

A claim is a function whose name begins with `claim_`; what it returns is compared with what it returns
under the other framework. Claims are independent of each other.
"""

import contextlib
import importlib
import io
import json
import logging
import re
import sys
import traceback
import warnings


def outcome(fn, *args, **kwargs):
    """The outcome of a call: the returned value as text, or the error with its message."""
    try:
        return shown(fn(*args, **kwargs))
    except Exception as e:
        return f"{type(e).__name__}: {shown(str(e))}"


def outcomes(*fns):
    return [outcome(fn) for fn in fns]


def warned(fn, *args, **kwargs):
    """The warnings of a call, with their categories, and what it leads to."""
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        result = outcome(fn, *args, **kwargs)
    return [*[f"{record.category.__name__}: {record.message}" for record in records], result]


def logged(fn, *args, **kwargs):
    """The log records of a call, with the names of their loggers, and what it leads to."""
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(
        f"{record.name} {record.levelname} {shown(record.getMessage())}"
    )
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        result = outcome(fn, *args, **kwargs)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    return [*records, result]


def shown(value):
    """As text, without addresses in the memory and without the places of private classes."""
    text = value if isinstance(value, str) else repr(value)
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    text = re.sub(r"'_[A-Z]\w*?__(\w+)'", r"'\1'", text)  # an old way of positional-only arguments
    return re.sub(r"\bkopf\._\w+\.(\w+\.)*", "kopf...", text)


def mro(cls):
    """The bases that are not private."""
    return [c.__name__ for c in cls.__mro__ if not c.__module__.startswith("kopf._")]


def main(name):
    module = importlib.import_module(name)
    results = {}
    for claim, fn in list(vars(module).items()):
        if claim.startswith("claim_"):
            noise = io.StringIO()
            try:
                with contextlib.redirect_stderr(noise), contextlib.redirect_stdout(noise):
                    results[claim] = fn()
            except Exception:
                results[claim] = traceback.format_exc(limit=-1).splitlines()[-1]
    print(json.dumps(results, default=shown))


if __name__ == "__main__":
    main(sys.argv[1])
