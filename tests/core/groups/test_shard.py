"""What is told of records in the offsets topic: only that they are committed where it wrote them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.core.groups.shard import Shard


@pytest.mark.parametrize("change", [{"is_leader": False}, {"leader_epoch": 4}])
def test_a_coordinator_that_was_deposed_acknowledges_nothing(change) -> None:
    """R5, found by chaos (seed 3004): frozen over its session, it woke as a follower; its log was cut,
    grew under its successor, and the mark passed the offsets of what it had written itself."""
    replica = SimpleNamespace(
        topic_partition=("__consumer_offsets", 0), leader_epoch=3, is_leader=True,
        high_watermark=10, log=SimpleNamespace(end_offset=12),
    )  # fmt: skip
    shard, told = Shard(None, replica), []
    shard._pending.append((12, told.append))
    shard.catch_up(1)
    assert told == []
    for name, value in change.items():
        setattr(replica, name, value)
    replica.high_watermark = 20
    shard.catch_up(2)
    assert told == []


def test_what_is_committed_is_told_once() -> None:
    replica = SimpleNamespace(
        topic_partition=("__consumer_offsets", 0), leader_epoch=3, is_leader=True,
        high_watermark=12, log=SimpleNamespace(end_offset=12),
    )  # fmt: skip
    shard, told = Shard(None, replica), []
    shard._pending.append((12, told.append))
    shard.catch_up(1)
    shard.catch_up(2)
    assert told == [1]
