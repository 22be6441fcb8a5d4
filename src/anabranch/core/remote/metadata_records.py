"""Kafka's records of remote segments, as its topic `__remote_log_metadata` has them.

What: the two records that tell of a segment, and the batches of a file that Kafka's tools read. A
value has the frame of the records of the metadata log, with type ids of its own; Kafka chooses the
partition by a hash of topic id and partition. Rules kept: a segment is told as STARTED first, and
then in its state, since Kafka takes no other order; ends are inclusive there. Source: KIP-405. Not
here: reading such records, which Anabranch needs for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from anabranch.core.diskless.rows import LogKey
from anabranch.core.remote.segments import RemoteSegment, SegmentState
from anabranch.core.types import ZERO_TOPIC_ID, Offset
from anabranch.core.wire.metadata_records import encode_record
from anabranch.core.wire.records import Record, build_batch
from anabranch.core.wire.schema import (
    ZERO_UUID,
    Bool,
    Int8,
    Int32,
    Int64,
    Message,
    NullableBytes,
    String,
    Struct,
    TopicUuid,
    Uuid,
)

TOPIC = "__remote_log_metadata"
PARTITIONS = 50
"""Kafka's default of `remote.log.metadata.topic.num.partitions`."""
BATCH_RECORDS = 500


class TopicIdPartitionEntry(Struct, constant=True):
    """A partition."""

    name: String = ""
    id: TopicUuid = ZERO_TOPIC_ID
    partition: Int32 = 0


class RemoteLogSegmentIdEntry(Struct, constant=True):
    """A segment."""

    topic_id_partition: TopicIdPartitionEntry = TopicIdPartitionEntry()
    id: Uuid = ZERO_UUID


class SegmentLeaderEpochEntry(Struct):
    """The first offset of a leader epoch in a segment."""

    leader_epoch: Int32 = 0
    offset: Int64 = 0


class RemoteLogSegmentMetadataRecord(Message, type_id=0, versions="0", flexible="0+"):
    """A try to copy a segment."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = RemoteLogSegmentIdEntry()
    start_offset: Int64 = 0
    end_offset: Int64 = 0
    broker_id: Int32 = 0
    max_timestamp_ms: Int64 = 0
    event_timestamp_ms: Int64 = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = []
    segment_size_in_bytes: Int32 = 0
    custom_metadata: NullableBytes = None
    remote_log_segment_state: Int8 = 0
    txn_index_empty: Annotated[Bool, "tag 0"] = False


class RemoteLogSegmentMetadataUpdateRecord(Message, type_id=1, versions="0", flexible="0+"):
    """A state that a segment has reached."""

    remote_log_segment_id: RemoteLogSegmentIdEntry = RemoteLogSegmentIdEntry()
    broker_id: Int32 = 0
    event_timestamp_ms: Int64 = 0
    custom_metadata: NullableBytes = None
    remote_log_segment_state: Int8 = 0


def metadata_values(topic: str, segment: RemoteSegment) -> Iterator[bytes]:
    """The values of the records that tell of a segment, in order. It has leader epochs."""
    place = TopicIdPartitionEntry(
        name=topic, id=segment.key.topic_id, partition=segment.key.partition
    )
    whose = RemoteLogSegmentIdEntry(topic_id_partition=place, id=segment.segment_id)
    yield encode_record(
        RemoteLogSegmentMetadataRecord(
            remote_log_segment_id=whose,
            start_offset=segment.start_offset,
            end_offset=segment.end_offset - 1,
            broker_id=segment.broker_id,
            max_timestamp_ms=segment.max_timestamp,
            event_timestamp_ms=segment.event_ms,
            segment_leader_epochs=[
                SegmentLeaderEpochEntry(leader_epoch=each.epoch, offset=each.start_offset)
                for each in segment.leader_epochs
            ],
            segment_size_in_bytes=segment.byte_size,
            txn_index_empty=not segment.has_aborted,
        )
    )
    if segment.state is not SegmentState.COPY_SEGMENT_STARTED:
        yield encode_record(
            RemoteLogSegmentMetadataUpdateRecord(
                remote_log_segment_id=whose,
                broker_id=segment.broker_id,
                event_timestamp_ms=segment.event_ms,
                custom_metadata=segment.custom_metadata or None,
                remote_log_segment_state=int(segment.state),
            )
        )


def metadata_batches(values: Sequence[bytes], now_ms: int) -> Iterator[bytes]:
    """The batches of a segment of the topic that has these values, from offset 0 on."""
    for first in range(0, len(values), BATCH_RECORDS):
        some = values[first : first + BATCH_RECORDS]
        records = [
            Record(Offset(first + at), now_ms, None, each, ()) for at, each in enumerate(some)
        ]
        yield bytes(build_batch(records, base_offset=first, leader_epoch=0))


def partition_hash(key: LogKey) -> bytes:
    """What Kafka hashes with murmur2 to choose the partition of a topic's records: Java's hash of
    the id's lower half, its upper half and the partition, in big-endian order."""
    upper, lower = key.topic_id[:8], key.topic_id[8:]
    found = 1
    for part in (_long_hash(lower), _long_hash(upper), key.partition):
        found = 31 * found + part
    return (found & 0xFFFFFFFF).to_bytes(4)


def _long_hash(eight: bytes) -> int:
    return int.from_bytes(eight[:4]) ^ int.from_bytes(eight[4:])
