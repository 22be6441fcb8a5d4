"""Where a node listens, as registrations of brokers and controllers say it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from immutables import Map

from anabranch.core.metadata.image import Endpoint


def endpoints_of(end_points: Iterable[Any]) -> Map[str, Endpoint]:
    """By the listener's name."""
    return Map(
        {
            point.name: Endpoint(point.host, point.port, point.security_protocol)
            for point in end_points
        }
    )
