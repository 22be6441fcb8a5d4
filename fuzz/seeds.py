"""Conversations to begin with: what well-behaved clients say, with ids and epochs that are right.

Fuzzing finds its way from them faster than from nothing: a group that is stable, a fetch session,
a producer with sequences, a log of several segments. `--minimise` keeps of them what is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack
from typing import Any

from anabranch.core.api.registry import handlers
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.frame import frame_request
from anabranch.core.wire.messages import (
    delete_records,
    fetch,
    find_coordinator,
    heartbeat,
    leave_group,
    list_offsets,
    offset_commit,
    offset_fetch,
)
from anabranch.core.wire.messages import join_group as join
from anabranch.core.wire.messages import produce as prod
from anabranch.core.wire.messages import sync_group as sync
from anabranch.core.wire.messages.describe_groups import DescribeGroupsRequest
from anabranch.core.wire.messages.init_producer_id import InitProducerIdRequest
from anabranch.core.wire.messages.list_groups import ListGroupsRequest
from anabranch.core.wire.records import Record, build_batch
from fuzz import chunks, sequences
from fuzz.batches import START_MS
from fuzz.node import Node
from fuzz.targets.stream import Session

SUBSCRIPTION = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"
ASSIGNMENT = b"\0\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff"


class Talk:
    """One connection's frames, with their answers as they come."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.answers: list[Any] = []
        self.session = Session(Node.fresh())
        answer = self.session.answer

        def keep(message: Any, request: Any) -> None:
            self.answers.append(message)
            answer(message, request)

        self.session.answer = keep  # type: ignore[method-assign]

    def say(self, message: Any, version: int | None = None) -> Any:
        """Send a request; the newest answer."""
        if version is None:
            version = handlers()[message.api_key].versions[-1]
        frame = b"".join(frame_request(len(self.frames), "fuzz", message, version))[4:]
        self.frames.append(frame)
        self.session.frame(frame)
        return self.answers[-1] if self.answers else None

    def event(self, name: str, *numbers: int) -> None:
        """Something that is no request."""
        frame = pack(">h", sequences.number_of(name)) + b"".join(pack(">I", n) for n in numbers)
        self.frames.append(frame)
        self.session.event(frame)

    def entry(self) -> bytes:
        """The input that this was."""
        return chunks.join(self.frames)


def batch(count: int = 2, **how: Any) -> bytearray:
    """A sound batch with keys."""
    records = [Record(n, START_MS + n, b"k%d" % n, b"v" * 30, ()) for n in range(count)]
    return build_batch(records, **how)


def produced(topic: str, records: bytes | bytearray, acks: int = -1) -> prod.ProduceRequest:
    """A Produce request for partition 0 by name (version 12)."""
    part = prod.PartitionProduceData(index=0, records=records)
    data = prod.TopicProduceData(name=topic, partition_data=[part])
    return prod.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data])


def fetched(offset: int, session: tuple[int, int] = (0, -1), **how: Any) -> fetch.FetchRequest:
    """A Fetch request of t-0 by name (version 12)."""
    part = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    topic = fetch.FetchTopic(topic="t", partitions=[part])
    return fetch.FetchRequest(
        max_wait_ms=500, session_id=session[0], session_epoch=session[1], topics=[topic],
        **{"replica_id": -1, "min_bytes": 1, "max_bytes": 1000, **how},
    )  # fmt: skip


def reading() -> Talk:
    """Produce, read by a session, wait, ask by time, delete, crash."""
    talk = Talk()
    for number in range(3):
        talk.say(produced("t", batch(codec=list(Codec)[number])), 12)
    answer = talk.say(fetched(0, (0, 0)), 12)
    talk.say(fetched(6, (answer.session_id, 1)), 12)
    talk.say(produced("t", batch()), 12)
    talk.say(fetched(6, (answer.session_id, 2), isolation_level=1), 12)
    for timestamp in (START_MS + 1, -1, -2, -3):
        part = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = list_offsets.ListOffsetsTopic(name="t", partitions=[part])
        talk.say(list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic]))
    gone = delete_records.DeleteRecordsPartition(partition_index=0, offset=3)
    topics = [delete_records.DeleteRecordsTopic(name="t", partitions=[gone])]
    talk.say(delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    talk.event("crash")
    talk.say(fetched(3), 12)
    return talk


def rolling() -> Talk:
    """Many small segments, retention, a stop in order."""
    talk = Talk()
    producer = talk.say(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
    for number in range(8):
        how = {"producer_id": producer.producer_id, "producer_epoch": 0}
        talk.say(produced("v", batch(2, base_sequence=2 * number, **how)), 12)
    talk.event("sync")
    talk.event("time", 400_000)
    talk.event("stop")
    talk.event("time", 80_000_000)
    talk.say(produced("v", batch(2, base_sequence=16, **how)), 12)
    talk.event("crash")
    return talk


def member(talk: Talk, member_id: str = "", instance: str | None = None) -> Any:
    """A JoinGroup request of a consumer, said; its answer."""
    protocol = join.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
    return talk.say(
        join.JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=60_000,
            member_id=member_id, group_instance_id=instance, protocol_type="consumer",
            protocols=[protocol],
        )
    )  # fmt: skip


def grouped(instance: str | None) -> Talk:
    """A group's life: joined, stable, committing, joined by another, loaded again, left."""
    talk = Talk()
    talk.say(find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    answer = member(talk, "", instance)
    if answer.error_code:
        answer = member(talk, answer.member_id, instance)
    me, generation = answer.member_id, answer.generation_id
    part = sync.SyncGroupRequestAssignment(member_id=me, assignment=ASSIGNMENT)
    talk.say(
        sync.SyncGroupRequest(
            group_id="g", generation_id=generation, member_id=me, group_instance_id=instance,
            protocol_type="consumer", protocol_name="range", assignments=[part],
        )
    )  # fmt: skip
    beat = heartbeat.HeartbeatRequest(
        group_id="g", generation_id=generation, member_id=me, group_instance_id=instance
    )
    talk.say(beat)
    place = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=[place])
    talk.say(
        offset_commit.OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=generation, member_id=me,
            group_instance_id=instance, topics=[topic],
        ),
        9,
    )  # fmt: skip
    wanted = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
    talk.say(offset_fetch.OffsetFetchRequest(groups=[wanted]))
    other = member(talk, "", "j" if instance else None)
    if other is not None and other.error_code:
        member(talk, other.member_id)
    talk.say(beat)
    talk.event("time", 5000)
    talk.say(ListGroupsRequest())
    talk.event("crash")
    talk.say(DescribeGroupsRequest(groups=["g"]))
    leaving = leave_group.MemberIdentity(member_id=me, group_instance_id=instance)
    talk.say(leave_group.LeaveGroupRequest(group_id="g", members=[leaving]))
    talk.event("time", 80_000_000)
    return talk


def compacted() -> Talk:
    """The same keys again and again, a tombstone, and the cleaner."""
    talk = Talk()
    for _ in range(6):
        talk.say(produced("u", batch(3)), 12)
    gone = build_batch([Record(0, START_MS, b"k1", None, ())])
    talk.say(produced("u", gone), 12)
    talk.say(produced("u", batch(1)), 12)
    talk.event("compact")
    talk.event("time", 80_000_000)
    talk.event("compact")
    talk.event("crash")
    return talk


def stream() -> Iterator[bytes]:
    """Every conversation."""
    for talk in (reading(), rolling(), compacted(), grouped(None), grouped("i")):
        yield talk.entry()
