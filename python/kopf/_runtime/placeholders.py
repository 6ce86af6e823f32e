"""What embedded operators of the original framework make and pass, while the engine here keeps such things by
itself. It owns empty classes only.
"""

from __future__ import annotations


class ResourceMemories:
    """Accepted as `memories=` of an operator, and not used: what is known of objects is in the engine."""


class Insights:
    """Accepted as `insights=` of an operator, and not used: what is known of resources is in the engine."""
