"""Questions that wait for a proof: how many are remembered when none can come."""

from __future__ import annotations

from tests.core.coordination.groups.group_world import GroupWorld

from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.errors import ErrorCode


def test_nobody_waits_for_a_proof_once_too_few_are_in_sync():
    """The first question's record was written in time; those after it are refused at once."""
    world = GroupWorld(1)
    world.node.change(OFFSETS_TOPIC, replicas=(1, 2), isr=(1, 2))
    world.follow()
    shard = world.groups.shard_of("g", world.node.now_ms)
    shard.replica.min_insync_replicas = 2
    assert isinstance(world.ask_fetch(), list)
    shard.replica.take_in_sync((1,))
    for _ in range(5):
        answer = world.ask_fetch()
        assert not isinstance(answer, list)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
