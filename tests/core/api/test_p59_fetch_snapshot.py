"""FetchSnapshot and Fetch of the metadata log: pieces, edges, what a follower is told."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.controller.world import CLUSTER, World

from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.batches import encode_snapshot
from anabranch.core.metadata.committed_log import CommittedBatch, CommittedLog, SnapshotView
from anabranch.core.metadata.snapshot import snapshot_records
from anabranch.core.outcome import Wait
from anabranch.core.types import CLUSTER_METADATA_TOPIC, METADATA_TOPIC_ID
from anabranch.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from anabranch.core.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestTopicSnapshot,
    SnapshotId,
)


def filled() -> World:
    """A controller whose log begins at offset 6 with a snapshot of everything before 8."""
    world = World()
    world.start(1)
    payload = encode_snapshot(snapshot_records(world.image), epoch=1, last_contained_ms=1, now_ms=1)
    log = CommittedLog(6, 1)
    for first, end, epoch in ((6, 8, 1), (8, 9, 1), (9, 11, 3)):
        log.extend(CommittedBatch(first, end, epoch, b"batch at %d;" % first))
    log.snapshot = SnapshotView(8, 1, payload)
    world.controller.log = log
    return world


@pytest.fixture
def world() -> World:
    return filled()


def piece(
    world: World,
    position: int = 0,
    max_bytes: int = 1 << 20,
    *,
    end_offset: int = 8,
    epoch: int = 1,
    topic: str = CLUSTER_METADATA_TOPIC,
    partition: int = 0,
    **changes: Any,
) -> Any:
    wanted = FetchSnapshotRequestPartitionSnapshot(
        partition=partition,
        snapshot_id=SnapshotId(end_offset=end_offset, epoch=epoch),
        position=position,
    )
    topics = [FetchSnapshotRequestTopicSnapshot(name=topic, partitions=[wanted])]
    request = FetchSnapshotRequest(cluster_id=CLUSTER, max_bytes=max_bytes, topics=topics)
    for name, value in changes.items():
        setattr(request, name, value)
    return world.ask(request)


def only(response: Any) -> Any:
    assert response.error_code == 0
    return response.topics[0].partitions[0]


def test_the_pieces_are_the_snapshot(world: World) -> None:
    snapshot = world.controller.log.snapshot
    assert snapshot is not None
    got = b""
    while len(got) < len(snapshot.payload):
        answer = only(piece(world, len(got), 100))
        assert (answer.error_code, answer.size) == (0, len(snapshot.payload))
        assert answer.position == len(got)
        assert 0 < len(answer.unaligned_records) <= 100
        got += bytes(answer.unaligned_records)
    assert got == snapshot.payload


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"end_offset": 9}, ErrorCode.SNAPSHOT_NOT_FOUND),
        ({"epoch": 2}, ErrorCode.SNAPSHOT_NOT_FOUND),
        ({"position": -1}, ErrorCode.POSITION_OUT_OF_RANGE),
        ({"position": 1 << 40}, ErrorCode.POSITION_OUT_OF_RANGE),
        ({"topic": "t"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_a_piece_cannot_be_had_for(
    world: World, changes: dict[str, Any], code: ErrorCode
) -> None:
    answer = only(piece(world, **changes))
    assert (answer.error_code, bytes(answer.unaligned_records)) == (code, b"")


def test_the_end_of_the_snapshot_is_out_of_range(world: World) -> None:
    snapshot = world.controller.log.snapshot
    assert snapshot is not None
    assert len(only(piece(world, len(snapshot.payload) - 1)).unaligned_records) == 1
    assert only(piece(world, len(snapshot.payload))).error_code == ErrorCode.POSITION_OUT_OF_RANGE


def test_no_bytes_may_be_asked_for(world: World) -> None:
    for max_bytes in (0, -5):
        answer = only(piece(world, 0, max_bytes))
        assert (answer.error_code, bytes(answer.unaligned_records)) == (0, b"")


def test_another_cluster_and_an_inactive_controller_refuse(world: World) -> None:
    assert piece(world, cluster_id="other").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert only(piece(world, cluster_id=None)).error_code == 0
    world.controller.resign()
    assert piece(world).error_code == ErrorCode.NOT_CONTROLLER


def test_without_a_snapshot_none_is_found(world: World) -> None:
    world.controller.log.snapshot = None
    assert only(piece(world)).error_code == ErrorCode.SNAPSHOT_NOT_FOUND


# Fetch


def fetch(world: World, offset: int, epoch: int = -1, **changes: Any) -> Any:
    partition = FetchPartition(
        partition=0,
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        partition_max_bytes=changes.pop("partition_max_bytes", 1 << 20),
    )
    topic = FetchTopic(
        topic=CLUSTER_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    request = FetchRequest(cluster_id=CLUSTER, max_wait_ms=500, topics=[topic])
    for name, value in changes.items():
        setattr(request, name, value)
    return world.ask(request)


def partition_of(response: Any) -> Any:
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def test_records_come_in_whole_batches_and_at_least_one(world: World) -> None:
    answer = partition_of(fetch(world, 6))
    assert b"".join(answer.records) == b"batch at 6;batch at 8;batch at 9;"
    assert (answer.log_start_offset, answer.high_watermark) == (6, 11)
    assert partition_of(fetch(world, 8, 1, partition_max_bytes=1)).records == [b"batch at 8;"]
    assert partition_of(fetch(world, 10, 3)).records == [b"batch at 9;"]


def test_from_before_the_log_the_snapshot_is_named(world: World) -> None:
    answer = partition_of(fetch(world, 0))
    assert (answer.snapshot_id.end_offset, answer.snapshot_id.epoch) == (8, 1)
    assert not answer.records


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (12, -1, (3, 11)),
        (12, 3, (3, 11)),
        (10, 2, (1, 9)),
        (9, 2, (1, 9)),
        (10, 1, (1, 9)),
        (11, 4, (3, 11)),
    ],
)
def test_who_has_what_never_was_learns_where_it_diverged(
    world: World, offset: int, epoch: int, expected: tuple[int, int]
) -> None:
    waiting = fetch(world, offset, epoch)
    assert isinstance(waiting, Wait) and world.controller.is_doubted
    assert waiting.poll(world.now_ms, False) is None, "the store was not asked yet"
    at_last = partition_of(waiting.poll(world.now_ms + 500, True))
    assert at_last.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.controller.is_doubt_settled = True
    answer = partition_of(waiting.poll(world.now_ms, False))
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == expected
    assert not answer.records


def test_at_the_end_it_waits_for_more(world: World) -> None:
    waiting = fetch(world, 11, 3)
    assert isinstance(waiting, Wait)
    assert waiting.deadline_ms == world.now_ms + 500
    assert waiting.poll(world.now_ms, False) is None
    world.controller.log.extend(CommittedBatch(11, 12, 3, b"news"))
    assert partition_of(waiting.poll(world.now_ms, False)).records == [b"news"]
    assert partition_of(fetch(world, 12, 3, max_wait_ms=0)).records == b""
    at_last = fetch(world, 12, 3)
    assert partition_of(at_last.poll(world.now_ms + 500, True)).high_watermark == 12
    world.controller.resign()
    left = partition_of(fetch(world, 12, 3))
    assert left.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition_of(at_last.poll(world.now_ms, False)).current_leader.leader_id == -1


def test_only_the_metadata_of_this_cluster_is_served(world: World) -> None:
    assert fetch(world, 6, cluster_id="other").error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    other = [FetchTopic(topic="t", topic_id=b"t" * 16, partitions=[FetchPartition(partition=0)])]  # type: ignore[arg-type]
    assert fetch(world, 6, topics=other).error_code == ErrorCode.INVALID_REQUEST


def test_r18_a_fetch_says_what_its_broker_has_read_before_a_heartbeat_does(world: World) -> None:
    sessions = world.controller.sessions
    world.beat(1, current_metadata_offset=7)
    fetch(world, 11, 3, replica_state=ReplicaState(replica_id=1))
    assert sessions.metadata_offsets == {1: 10}
    fetch(world, 6, replica_state=ReplicaState(replica_id=1))
    assert sessions.metadata_offsets == {1: 10}, "an older question takes nothing back"
    fetch(world, 11, 3, replica_state=ReplicaState(replica_id=9))
    assert sessions.metadata_offsets == {1: 10}, "who has no session is not known"
    fetch(world, 11, 2, replica_state=ReplicaState(replica_id=1))
    assert sessions.metadata_offsets == {1: 10}, "nor what another history had"
