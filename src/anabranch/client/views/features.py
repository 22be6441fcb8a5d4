"""Features of a cluster: their levels, and who holds them back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.client.features import Feature


def feature_view(each: Feature) -> dict[str, Any]:
    """One feature: its level, and the levels that brokers support."""
    return {
        "feature": each.name,
        "level": each.level,
        "newest_common": each.newest_common,
        "held_back_by": each.holding_back,
        "supported": {str(broker): list(span) for broker, span in each.supported.items()},
    }
