"""Replicas of partitions, and what became of moves that were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.client.reassignments import Asked
    from anabranch.core.types import TopicPartition


def moves_view(moves: Mapping[TopicPartition, tuple[int, ...]]) -> list[dict[str, Any]]:
    """The replicas of each partition, in order."""
    return [
        {"topic": place.topic, "partition": place.partition, "replicas": [*row]}
        for place, row in sorted(moves.items())
    ]


def outcome_view(each: Asked) -> dict[str, Any]:
    """One move: whether it was taken, or why not."""
    failure = each.code.name if each.code else None
    return {"partition": str(each.place), "error": failure, "message": each.sentence or None}
