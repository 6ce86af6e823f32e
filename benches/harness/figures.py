"""The types of workloads and of their figures."""

from __future__ import annotations

from collections.abc import Callable

from benches.harness.clusters import Cluster
from benches.harness.contestants import Contestant

Figures = dict[str, float]
Workload = Callable[[Cluster, Contestant], Figures]
