"""Where the reference, Kopf 1.45, is expected to fail our tests, and why we are different on purpose.

Read by `conftest.py` when the tests run with the reference's interpreter. Every entry is described in
``docs/compatibility.md`` too.
"""

IN_REFERENCE: dict[str, str] = {}
