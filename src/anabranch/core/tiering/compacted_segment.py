"""A segment of diskless records with the newest record of each key alone.

What: from some neighbouring segments, with their files, to the files of the one that takes their
place. The rules for records are those of classic logs, in the same code (`core/log/compaction.py`).
Rules kept: the newest offset of a key is known of the whole pass, and not of the group alone; a
tombstone whose horizon has passed goes only if no other group has its key (`superseded.py` says
why); each group keeps its last batch, if need be empty, so that no segment is empty; producers are
those at the end of the last segment. Not here: where bytes come from, puts, who knows what is
newest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from anabranch.core.errors import ProtocolError, StorageFault
from anabranch.core.log.checkpoints import LEADER_EPOCHS
from anabranch.core.log.compaction import (
    CLEANED,
    Job,
    Newest,
    newest_offsets,
    write_as_one,
)
from anabranch.core.log.epochs import LeaderEpochs
from anabranch.core.log.indexes import AbortedRange
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.log.producer_snapshot import decode_snapshot
from anabranch.core.log.scan import BadBatch
from anabranch.core.log.segment import LOG, OFFSETS, SNAPSHOT, TIMES, TRANSACTIONS, offset_name
from anabranch.core.remote.compacted_mark import Mark, encode_mark
from anabranch.core.remote.segment_check import check_batches
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.core.tiering.built_segment import INDEX_INTERVAL_BYTES, BuiltSegment
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import walk
from anabranch.core.wire.messages.compact_segment import CompactSegmentRequest
from anabranch.core.wire.messages.plan_compaction import EpochOf

FOLDER = "segment"
FAR = 2**63 - 1
"""The newest offset of a key whose newest record lies elsewhere."""
NO_LIMIT = 1 << 62
BUFFER_BYTES = 4 << 20


class Group(NamedTuple):
    """Neighbouring segments that become one, and what their pass knows."""

    segments: Sequence[RemoteSegment]
    mark: Mark
    now_ms: int
    delete_retention_ms: int
    epoch_before: int = -1
    """Of the record before them; -1: there is none."""
    aborted: Sequence[AbortedRange] = ()
    """All of the pass, by first offset."""

    @property
    def start_offset(self) -> int:
        """The first offset."""
        return self.segments[0].start_offset

    @property
    def end_offset(self) -> int:
        """Behind the last one."""
        return self.segments[-1].end_offset


class Files(NamedTuple):
    """What is read of a group."""

    logs: Sequence[Buffer]
    """The batches of each segment."""
    snapshots: Mapping[int, Buffer]
    """Producers at some offsets; those at the end of the group and of the pass are needed."""
    leader_epochs: Buffer
    """At the end of the group."""


class Live(NamedTuple):
    """What the whole pass knows of a group's records, by their offsets."""

    newest: Set[int]
    """Those that are the newest of their keys."""
    alone: Set[int]
    """Those of them whose keys no other group has."""


def keys_of(group: Group, files: Files) -> dict[bytes, int]:
    """The newest offset of each key in a group. Raises StorageFault."""
    return newest_offsets(_laid_out(group, files), _job(group, files))


def compacted(group: Group, files: Files, live: Live, segment_id: SegmentId) -> BuiltSegment:
    """The segment that takes the place of a group. Whose leader it is, and in which epoch, is left
    to the leader. Raises StorageFault."""
    held, job = _laid_out(group, files), _job(group, files)
    offsets = newest_offsets(held, job)
    if not live.newest <= set(offsets.values()):
        raise StorageFault("its segments do not have the keys that were read before")
    newest = {key: each if each in live.newest else FAR for key, each in offsets.items()}
    tied = {key: FAR if each in live.alone else newest[key] for key, each in offsets.items()}
    epochs = LeaderEpochs()
    if group.epoch_before >= 0:
        epochs.assign(group.epoch_before, group.start_offset - 1)
    (new,) = write_as_one(held, job, Newest(newest, tied), epochs).segments
    return _built(group, files, held, new.max_timestamp, segment_id)


def _built(
    group: Group, files: Files, held: MemoryFiles, max_timestamp: int, segment_id: SegmentId
) -> BuiltSegment:
    made: dict[str, list[Buffer]] = {}
    for suffix in (LOG, OFFSETS, TIMES, TRANSACTIONS):
        name = offset_name(group.start_offset, suffix)
        content = held.contents.pop(f"{FOLDER}/{name}{CLEANED}")
        if content or suffix != TRANSACTIONS:
            made[name] = [content]
    made[offset_name(group.end_offset, SNAPSHOT)] = [files.snapshots[group.end_offset]]
    made[LEADER_EPOCHS] = [files.leader_epochs]
    segment = RemoteSegment(
        segment_id,
        group.segments[0].key,
        group.start_offset,
        group.end_offset,
        max_timestamp,
        joined_epochs(group.segments),
        len(made[offset_name(group.start_offset, LOG)][0]),
        -1,
        -1,
        has_aborted=offset_name(group.start_offset, TRANSACTIONS) in made,
        custom_metadata=encode_mark(group.mark),
    )
    return BuiltSegment(segment, made)


def joined_epochs(segments: Sequence[RemoteSegment]) -> tuple[EpochStart, ...]:
    """The leader epochs of neighbours as those of one segment."""
    found: list[EpochStart] = []
    for segment in segments:
        found += (e for e in segment.leader_epochs if not found or e.epoch > found[-1].epoch)
    return tuple(found)


def _laid_out(group: Group, files: Files) -> MemoryFiles:
    """The files as a folder of a log has them."""
    held = MemoryFiles()
    for segment, content in zip(group.segments, files.logs, strict=True):
        _check(segment, content)
        held.contents[f"{FOLDER}/{offset_name(segment.start_offset, LOG)}"] = bytearray(content)
    for offset, encoded in files.snapshots.items():
        held.contents[f"{FOLDER}/{offset_name(offset, SNAPSHOT)}"] = bytearray(encoded)
    return held


def _check(segment: RemoteSegment, content: Buffer) -> None:
    """No checksum covers offsets and leader epochs of batches, and offsets decide what stays.
    Raises StorageFault."""
    try:
        check_batches(segment, walk(content))
    except (BadBatch, ProtocolError) as problem:
        raise StorageFault(
            f"segment {segment.segment_id.hex()} of offsets {segment.start_offset} to "
            f"{segment.end_offset - 1} is damaged: {problem}. Restore its objects from a copy, or "
            "delete its records with DeleteRecords"
        ) from None


def _job(group: Group, files: Files) -> Job:
    return Job(
        folder=FOLDER,
        segments=tuple((each.start_offset, each.byte_size) for each in group.segments),
        first_dirty_offset=group.start_offset,
        upto=group.end_offset,
        now_ms=group.now_ms,
        delete_retention_ms=group.delete_retention_ms,
        segment_bytes=NO_LIMIT,
        segment_index_bytes=NO_LIMIT,
        index_interval_bytes=INDEX_INTERVAL_BYTES,
        map_bytes=NO_LIMIT,
        buffer_bytes=BUFFER_BYTES,
        producers=_last_words(files.snapshots[group.mark.upto], group.mark.upto),
        aborted=tuple(
            (each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
            for each in group.aborted
            if each.first_offset < group.end_offset and each.last_offset >= group.start_offset
        ),
    )


def _last_words(encoded: Buffer, upto: int) -> dict[int, tuple[int, int]]:
    states = decode_snapshot(bytes(encoded))
    if states is None:
        raise StorageFault("the snapshot of producers at the end of the pass is damaged")
    return {each.producer_id: (each.last_offset_before(upto), each.epoch) for each in states}


def compact_request(claim_id: int, segment: RemoteSegment, step: int) -> CompactSegmentRequest:
    """What tells a partition's leader of a step of a try."""
    return CompactSegmentRequest(
        claim_id=claim_id,
        step=step,
        topic_id=segment.key.topic_id,
        partition_index=segment.key.partition,
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        max_timestamp=segment.max_timestamp,
        byte_size=segment.byte_size,
        has_aborted=segment.has_aborted,
        leader_epochs=[
            EpochOf(epoch=each.epoch, start_offset=each.start_offset)
            for each in segment.leader_epochs
        ],
        metadata=segment.custom_metadata,
    )
