"""Tools for the tests of operators: clusters, operators, the runner of commands, and their errors.

The fixtures `kopf_cluster` and `kopf_operator` are in the pytest plugin, which pytest loads by itself.
"""

from kopf._cli.runner import KopfRunner
from kopf._testing.client import ApiError
from kopf._testing.cluster import Cluster
from kopf._testing.control_plane import ClusterUnavailableError
from kopf._testing.discovery import UnknownKindError
from kopf._testing.embedded import NotSupportedError, Request
from kopf._testing.operator import Operator, UnexpectedError

__all__ = [
    "ApiError",
    "Cluster",
    "ClusterUnavailableError",
    "KopfRunner",
    "NotSupportedError",
    "Operator",
    "Request",
    "UnexpectedError",
    "UnknownKindError",
]
