"""CRDs in the style of real ones, with sample objects, built from annotated samples."""

from __future__ import annotations

from . import (
    backups,
    certificates,
    cloud,
    clusters,
    databases,
    delivery,
    gateways,
    kafka,
    meshes,
    monitoring,
    networks,
    nodes,
    pipelines,
    plain,
    postgres,
    serverless,
    workflows,
)
from .blocks import CrdCase

MODULES = (
    *(certificates, monitoring, workflows, pipelines, delivery, gateways, meshes, networks, serverless),
    *(kafka, postgres, databases, cloud, backups, clusters, nodes, plain),
)
CASES: list[CrdCase] = [case for module in MODULES for case in module.CASES]
