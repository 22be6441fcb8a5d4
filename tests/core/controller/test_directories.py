"""Folders of a broker: which holds what, and what one that fails takes away (KIP-858)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.controller.test_reassignment import alter
from tests.core.controller.world import World

from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.directories import LOST_DIRECTORY
from anabranch.core.metadata.features import METADATA_VERSION
from anabranch.core.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

UNASSIGNED = bytes(16)
A, B, C = (bytes([200 + each]) * 16 for each in range(3))


def two_folders(broker_id: int) -> list[bytes]:
    return [bytes([broker_id + 100]) * 16, bytes([broker_id + 150]) * 16]


@pytest.fixture
def world() -> World:
    """Three brokers with two folders each, and a topic of which nobody said where it lies."""
    world = World()
    for broker_id in (1, 2, 3):
        world.register(broker_id, log_dirs=two_folders(broker_id))
        world.beat(broker_id)
    world.create("t", [1, 2, 3], [1, 2, 3], min_insync_replicas="2")
    assert world.partition("t").directories == (UNASSIGNED,) * 3
    return world


def assign(world: World, broker_id: int, placed: dict[int, bytes], **changes: Any) -> Any:
    """Say that partitions of `t` lie in folders; the answer's codes by partition."""
    topic = world.image.topic("t")
    assert topic is not None
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=world.image.brokers[broker_id].epoch,
        directories=[
            DirectoryData(
                id=directory,
                topics=[
                    TopicData(
                        topic_id=changes.get("topic_id", topic.topic_id),
                        partitions=[PartitionData(partition_index=index)],
                    )
                ],
            )
            for index, directory in placed.items()
        ],
    )
    answer = world.ask(request)
    if answer.error_code:
        return answer.error_code
    return [
        each.error_code
        for directory in answer.directories
        for topics in directory.topics
        for each in topics.partitions
    ]


def test_a_broker_says_where_its_replicas_lie(world: World) -> None:
    first, second = two_folders(1)
    assert assign(world, 1, {0: first, 1: second}) == [0, 0]
    assert world.partition("t", 0).directories == (first, UNASSIGNED, UNASSIGNED)
    assert world.partition("t", 1).directories == (second, UNASSIGNED, UNASSIGNED)
    assert world.partition("t", 0).leader == 1
    before = world.image
    assert assign(world, 1, {0: first}) == [0]
    assert world.image is before, "nothing new, nothing written"
    assert world.replayed() == world.image


def test_what_lies_in_a_failed_folder_gets_another_leader(world: World) -> None:
    first, second = two_folders(1)
    assign(world, 1, {0: first, 1: second})
    assert world.beat(1, offline_log_dirs=[second]).error_code == 0
    assert world.image.brokers[1].log_dirs == (first,)
    lost, kept = world.partition("t", 1), world.partition("t", 0)
    assert (lost.leader, lost.isr) == (2, (2, 3))
    assert (kept.leader, kept.isr) == (1, (1, 2, 3))
    assert "broker 1 left the ISR of t-1: its folder failed" in world.sentences("ISR_CHANGED")
    assert world.replayed() == world.image
    before = world.image
    world.beat(1, offline_log_dirs=[second])
    assert world.image is before, "told again with every heartbeat, and done once"


def test_it_is_not_given_back_as_long_as_the_folder_is_gone(world: World) -> None:
    first, second = two_folders(1)
    assign(world, 1, {0: first, 1: second})
    world.beat(1, offline_log_dirs=[second])
    world.beat(2, want_fence=True)
    world.beat(3, want_fence=True)
    assert world.partition("t", 1).leader == -1
    world.pass_time(400_000)
    assert world.partition("t", 1).leader == -1
    world.beat(3)
    assert world.partition("t", 1).leader == 3


def test_a_fetch_from_before_its_folder_failed_brings_no_replica_back_in_sync(
    world: World,
) -> None:
    """The leader may take it up after it has read that the replica left."""
    first, second = two_folders(2)
    assign(world, 2, {1: second})
    world.beat(2, offline_log_dirs=[second])
    for _ in range(2):
        answer = alter(world, 1, 3, 2, index=1)
        assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
        assert world.partition("t", 1).isr == (1, 3)
        controller = world.controller
        controller.begin_term(2, world.image, controller.log, world.now_ms)
        world.beat(2, offline_log_dirs=[second])  # as with every heartbeat
    world.register(2, incarnation=2, log_dirs=[first])
    world.beat(2)
    assert alter(world, 1, 3, 2, index=1).error_code == 0, "it was copied anew"


def test_a_repaired_folder_comes_back_with_the_broker(world: World) -> None:
    first, second = two_folders(1)
    assign(world, 1, {1: second})
    world.beat(1, offline_log_dirs=[second])
    world.register(1, incarnation=2, log_dirs=[first, second])
    world.beat(1)
    assert world.image.brokers[1].log_dirs == (first, second)
    assert world.partition("t", 1).isr == (2, 3), "it has to catch up"


def test_a_folder_that_failed_before_it_was_told(world: World) -> None:
    first, second = two_folders(1)
    world.beat(1, offline_log_dirs=[second])
    assert world.partition("t", 1).leader == 1, "nobody knows yet what lies there"
    assert assign(world, 1, {1: second}) == [0]
    assert (world.partition("t", 1).leader, world.partition("t", 1).isr) == (2, (2, 3))
    assert world.partition("t", 0).leader == 1
    assert world.replayed() == world.image
    assert first in world.image.brokers[1].log_dirs


def test_the_last_replica_in_a_failed_folder_leaves_nobody() -> None:
    world = World()
    world.register(1, log_dirs=[A, B])
    world.beat(1)
    world.create("t", [1], [1])
    assign(world, 1, {0: A, 1: B})
    world.beat(1, offline_log_dirs=[B])
    assert (world.partition("t", 1).leader, world.partition("t", 1).elr) == (-1, (1,))
    assert world.partition("t", 0).leader == 1
    world.register(1, incarnation=2, previous_broker_epoch=world.image.brokers[1].epoch,
                   log_dirs=[A, B])  # fmt: skip
    world.beat(1)
    assert world.partition("t", 1).leader == 1, "the repaired folder has everything"
    assert world.replayed() == world.image


def test_what_was_lost_does_not_count_again_in_another_folder() -> None:
    world = World()
    world.register(1, log_dirs=[A, B])
    world.beat(1)
    world.create("t", [1])
    assign(world, 1, {0: A})
    world.register(1, incarnation=2, previous_broker_epoch=world.image.brokers[1].epoch,
                   log_dirs=[B, C])  # fmt: skip
    world.beat(1)
    assert world.partition("t").leader == -1
    assert assign(world, 1, {0: B}) == [ErrorCode.INELIGIBLE_REPLICA]
    assert world.partition("t").directories == (A,)
    assert world.partition("t").leader == -1


def test_a_replica_that_is_lost_in_a_folder_that_works_gets_another_leader(world: World) -> None:
    first, second = two_folders(1)
    assign(world, 1, {0: first, 1: first})
    assert assign(world, 1, {1: LOST_DIRECTORY}) == [0]
    lost, kept = world.partition("t", 1), world.partition("t", 0)
    assert (lost.leader, lost.isr, lost.directories[0]) == (2, (2, 3), LOST_DIRECTORY)
    assert (kept.leader, kept.isr) == (1, (1, 2, 3))
    why = "broker 1 left the ISR of t-1: it cannot open or read the log"
    assert why in world.sentences("ISR_CHANGED")
    world.beat(2, want_fence=True)
    world.beat(3, want_fence=True)
    assert world.partition("t", 1).leader == -1, "it has nothing to lead with"
    world.beat(3)
    assert assign(world, 1, {1: second}) == [0], "it was opened after all"
    assert world.partition("t", 1).directories[0] == second
    assert world.replayed() == world.image


def test_who_is_alone_in_sync_is_not_lost_because_its_broker_says_so(world: World) -> None:
    """It may be read again one day; without it everything is lost."""
    first, _ = two_folders(1)
    assign(world, 1, {0: first})
    world.beat(2, want_fence=True)
    world.beat(3, want_fence=True)
    before = world.image
    assert assign(world, 1, {0: LOST_DIRECTORY}) == [ErrorCode.INELIGIBLE_REPLICA]
    assert world.image is before


def test_what_cannot_be_assigned_is_answered_by_itself(world: World) -> None:
    first, _ = two_folders(1)
    world.register(4, log_dirs=[A, B])
    world.beat(4)
    assert assign(world, 1, {7: first, 0: first}) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert assign(world, 4, {0: A}) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    unknown = assign(world, 1, {0: first}, topic_id=bytes([9]) * 16)
    assert unknown == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_an_old_incarnation_and_an_old_level_are_refused(world: World) -> None:
    first, second = two_folders(1)
    request = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=1)
    assert world.ask(request).error_code == ErrorCode.STALE_BROKER_EPOCH
    world.level(METADATA_VERSION, 16)
    assert assign(world, 1, {0: first}) == ErrorCode.UNSUPPORTED_VERSION
    before = world.image
    world.beat(1, offline_log_dirs=[second])
    assert world.image is before


def test_a_broker_of_which_every_folder_failed_is_fenced_and_leads_nothing(world: World) -> None:
    """A record of its change cannot say that no folder is left: an empty list says "as before"."""
    folders = two_folders(1)
    assign(world, 1, {0: folders[0], 1: folders[1]})
    world.beat(2, want_fence=True)
    world.beat(3, want_fence=True)
    assert world.partition("t").isr == (1,)
    world.beat(1, offline_log_dirs=folders[:1])
    assert not world.image.brokers[1].fenced, "a folder is left"
    for _ in range(2):
        assert world.beat(1, offline_log_dirs=folders).is_fenced
        assert world.image.brokers[1].fenced
        assert [world.partition("t", index).leader for index in (0, 1)] == [-1, -1]
    assert "broker 1 left the ISR of t-1: its folder failed" in world.sentences("ISR_CHANGED")
    assert len(world.sentences("FOLDER_FAILED")) == 2, "told with every heartbeat, and said once"
    world.beat(2)
    assert [world.partition("t", index).leader for index in (0, 1)] == [-1, -1]
    assert world.replayed() == world.image
