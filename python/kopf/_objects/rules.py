"""Rules of the core for objects and declarations, which need no engine.

Besides `_runtime/bridge.py`, only this module imports the compiled one. Other modules import this one where
they call a rule: most processes that only declare handlers call none.
"""

from kopf._kopf import (
    is_exact_namespace,
    json_patch,
    match_namespace,
    restore_essence,
    select_resources,
    unmatched_namespaces,
)

__all__ = [
    "is_exact_namespace",
    "json_patch",
    "match_namespace",
    "restore_essence",
    "select_resources",
    "unmatched_namespaces",
]
