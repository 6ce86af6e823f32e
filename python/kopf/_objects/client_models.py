"""Detection of objects of other Kubernetes libraries, without importing the libraries."""

from __future__ import annotations

import sys
from typing import Any

MODEL_PREFIXES = ("kubernetes.client.models.", "kubernetes_asyncio.client.models.")


def is_model(obj: Any) -> bool:
    """Whether this is a model of one of the official client libraries, or of a class derived from a model."""
    return any(cls.__module__.startswith(MODEL_PREFIXES) for cls in type(obj).__mro__)


def is_pykube_object(obj: Any) -> bool:
    """Whether this is an API object of pykube; nothing can be, as long as pykube is not imported."""
    module = sys.modules.get("pykube.objects")
    return module is not None and isinstance(obj, module.APIObject)
