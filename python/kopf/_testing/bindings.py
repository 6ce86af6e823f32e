"""The bindings of the testing kit. Operators use only those of `kopf._runtime.bridge`."""

from __future__ import annotations

from kopf._kopf import ApiServer, VirtualTime

__all__ = ["ApiServer", "VirtualTime"]
