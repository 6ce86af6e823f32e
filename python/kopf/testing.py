"""Tools for the tests of operators. It owns their public names.

The fixtures `kopf_cluster` and `kopf_operator` come with the pytest plugin, which is there by itself.
"""

from kopf._kits.clusters.client import Refused
from kopf._kits.clusters.cluster import Cluster
from kopf._kits.clusters.controlplane import Unavailable
from kopf._kits.clusters.laboratory import NotHad, Request
from kopf._kits.operators import Operator, UnexpectedError
from kopf._kits.runner import KopfRunner

__all__ = [
    "Cluster",
    "KopfRunner",
    "NotHad",
    "Operator",
    "Refused",
    "Request",
    "Unavailable",
    "UnexpectedError",
]
