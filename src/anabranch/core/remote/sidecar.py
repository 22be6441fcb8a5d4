"""The sidecar of a remote segment: its facts as an object beside its bytes.

What: JSON with the fields below, put once all other objects of the segment are there. Why: the
facts lie in a database; if that is lost, they are read back from the store. Rules kept: a sidecar
that is damaged, or that lies where another segment's should, is named and not used; what a
restore reads counts as FINISHED: all of its objects were stored before the sidecar, its offsets lay
below the last stable offset, and its epochs tell whether they still count. Not here: listing.

    version, topic_id, topic, partition, segment_id, start_offset, end_offset, max_timestamp,
    leader_epochs [[epoch, first offset], …], byte_size, broker_id, leader_epoch, has_aborted,
    event_ms, custom_metadata (hexadecimal)
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import msgspec

from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.remote.keys import SIDECAR, Place, place_of
from anabranch.core.remote.segments import (
    CUSTOM_METADATA_BYTES,
    EpochStart,
    RemoteSegment,
    SegmentId,
    SegmentState,
)
from anabranch.core.types import Buffer, TopicId

VERSION = 1
MOST_BYTES = 1 << 20
"""Of a sidecar: tens of thousands of leader epochs in one segment."""


class _Sidecar(msgspec.Struct):
    version: int
    topic_id: str
    topic: str
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    max_timestamp: int
    leader_epochs: list[tuple[int, int]]
    byte_size: int
    broker_id: int
    leader_epoch: int
    has_aborted: bool
    event_ms: int
    custom_metadata: str = ""


class Described(NamedTuple):
    """What a sidecar tells."""

    topic: str
    segment: RemoteSegment


def encode_sidecar(topic: str, segment: RemoteSegment) -> bytes:
    """The object's bytes."""
    told = _Sidecar(
        version=VERSION,
        topic_id=segment.key.topic_id.hex(),
        topic=topic,
        partition=segment.key.partition,
        segment_id=segment.segment_id.hex(),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        max_timestamp=segment.max_timestamp,
        leader_epochs=list(segment.leader_epochs),
        byte_size=segment.byte_size,
        broker_id=segment.broker_id,
        leader_epoch=segment.leader_epoch,
        has_aborted=segment.has_aborted,
        event_ms=segment.event_ms,
        custom_metadata=segment.custom_metadata.hex(),
    )
    return msgspec.json.encode(told) + b"\n"


def decode_sidecar(encoded: Buffer, key: str) -> Described:
    """What the sidecar of that name tells. Raises StorageFault where it tells nothing that can be
    used."""
    try:
        told = msgspec.json.decode(encoded, type=_Sidecar)
        segment = _segment(told)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as problem:
        raise StorageFault(f"object {key}: it is no segment's description: {problem}") from None
    if place_of(key) != Place(segment.key, segment.segment_id, SIDECAR):
        raise StorageFault(f"object {key}: it describes another segment than its name says")
    return Described(told.topic, segment)


def _segment(told: _Sidecar) -> RemoteSegment:
    if told.version != VERSION:
        raise ValueError(f"version {told.version} is unknown")
    epochs = tuple(EpochStart(*each) for each in told.leader_epochs)
    _check(told, epochs)
    return RemoteSegment(
        SegmentId(bytes.fromhex(told.segment_id)),
        LogKey(TopicId(bytes.fromhex(told.topic_id)), told.partition),
        told.start_offset,
        told.end_offset,
        told.max_timestamp,
        epochs,
        told.byte_size,
        told.broker_id,
        told.leader_epoch,
        told.has_aborted,
        SegmentState.COPY_SEGMENT_FINISHED,
        told.event_ms,
        bytes.fromhex(told.custom_metadata),
    )


def _check(told: _Sidecar, epochs: tuple[EpochStart, ...]) -> None:
    if not 0 <= told.start_offset < told.end_offset or told.byte_size < 0:
        raise ValueError("its offsets or its size are impossible")
    if not epochs or epochs[0].start_offset != told.start_offset:
        raise ValueError("its leader epochs do not begin where it does")
    if epochs[-1].start_offset >= told.end_offset or not all(
        one.epoch < other.epoch and one.start_offset < other.start_offset
        for one, other in pairwise(epochs)
    ):
        raise ValueError("its leader epochs are out of order")
    if len(told.custom_metadata) > 2 * CUSTOM_METADATA_BYTES:
        raise ValueError("its custom metadata is too long")
