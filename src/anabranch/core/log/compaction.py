"""Compaction: of each key only the newest record stays; offsets and order stay as they are.

    job      everything that a pass over one log needs
    run      read the dirty part into a key map, then write the segments anew beside the old ones

What stays: the newest record of every key below the end of the pass; a tombstone until its delete
horizon (`delete.retention.ms` after it was first compacted); records without a key never. Records
of aborted transactions go; a marker goes once nothing of its transaction is left, no snapshot of
producers says that it is open, and its horizon has passed. Three batches stay, if need be empty:
the last synced one of a producer, so that its sequence is known; the first one of a leader epoch,
so that whoever copies the log knows where the epoch began; the last one of a pass, so that a reader
comes to the log's end though nothing follows. They are few: librdkafka takes an answer without any
record for one that was too large.

Rules kept: nothing at or above the end of a pass changes: a recovery point covers only what lies
below, and a hole above it looks like the end of a file that a power cut took. `run` changes no file
of the log: it writes `.cleaned` files, which a crash leaves as rubbish. It needs no Log object, so
that another process can do it, and yields often, so that its driver can hold a rate or stop.

Source: Kafka 4.1's LogCleaner (behaviour), KIP-534. Kafka keeps only the first of the three. Not
here: which part of a log is worth it (`cleanable.py`), the life of a pass (`cleaner.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from anabranch.core.errors import CorruptLog, ProtocolError
from anabranch.core.log.batch_filter import rewritten
from anabranch.core.log.cleanable import Dirt
from anabranch.core.log.compacted_transactions import Transactions, open_at_snapshots
from anabranch.core.log.epochs import LeaderEpochs
from anabranch.core.log.files import File, Files
from anabranch.core.log.indexes import INT32_MAX, AbortedRange, encode_aborted
from anabranch.core.log.key_map import KeyMap
from anabranch.core.log.lookup import aborted_ranges
from anabranch.core.log.record_walk import Place, plain_records, survivors
from anabranch.core.log.segment import LOG, OFFSETS, TIMES, TRANSACTIONS, Segment, offset_name
from anabranch.core.log.side_files import forget_snapshots_within
from anabranch.core.log.state import LogState
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import (
    BATCH_OVERHEAD,
    CONTROL_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc_is_valid,
    read_header,
)
from anabranch.core.wire.records import FARTHEST_TIME

CLEANED = ".cleaned"
SMALLEST_BUFFER_BYTES = 4096
"""A chunk holds more than a batch's header, whatever the settings say."""
LATEST_HORIZON_MS = FARTHEST_TIME // 2
"""For ever. `delete.retention.ms` may be any long; a horizon is a base timestamp, and readers are
faster where sums with it cannot wrap."""


# The job.


class Job(msgspec.Struct, frozen=True):
    """One pass over one log: everything that `run` needs; it can be sent to another process."""

    folder: str
    segments: tuple[tuple[int, int], ...]
    """(base offset, size) of every segment below `upto`."""
    first_dirty_offset: int
    upto: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    """Memory for the key map."""
    buffer_bytes: int
    """Read, and written, at a time."""
    producers: dict[int, tuple[int, int]]
    """Producer id -> (offset of its last data record that is synced, its epoch)."""
    aborted: tuple[tuple[int, int, int, int], ...]
    """Every AbortedRange that begins in the segments, by first offset."""


def job(
    log: LogState,
    found: Dirt,
    *,
    now_ms: int,
    map_bytes: int,
    io_bytes: int,
    blocking: bool = True,
) -> Job:
    """The pass that removes some dirt, half of `io_bytes` for what is read and half for what is
    written. May raise CorruptLog from reading an index, and ColdRead without `blocking`."""
    forget_snapshots_within(log, found.upto)  # a marker stays for as long as one needs it
    segments = [each for each in log.segments[:-1] if each.base_offset < found.upto]
    aborted = [
        entry
        for each in log.segments  # a transaction's end may lie behind what is compacted
        for entry in aborted_ranges(log, each, blocking=blocking)
        if entry.first_offset < found.upto
    ]
    config = log.config
    return Job(
        folder=log.folder,
        segments=tuple((each.base_offset, each.size) for each in segments),
        first_dirty_offset=found.first_dirty_offset,
        upto=found.upto,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        map_bytes=map_bytes,
        buffer_bytes=max(SMALLEST_BUFFER_BYTES, io_bytes // 2),
        producers={
            one.producer_id: (one.last_offset_before(log.flushed_offset), one.epoch)
            for one in log.producers
        },
        aborted=tuple(
            (each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
            for each in sorted(aborted, key=_first_offset)
        ),
    )


def _first_offset(entry: AbortedRange) -> int:
    return entry.first_offset


# Running.


class NewSegment(msgspec.Struct, frozen=True):
    """A segment that waits in `.cleaned` files to replace others; it has the first one's name."""

    replaces: tuple[int, ...]
    size: int
    max_timestamp: int
    max_timestamp_offset: int

    @property
    def base_offset(self) -> int:
        """Its first offset, and its name."""
        return self.replaces[0]


class Outcome(msgspec.Struct):
    """What a pass has made. `upto` is where the next one begins."""

    upto: int = 0
    segments: list[NewSegment] = []
    read_bytes: int = 0
    written_bytes: int = 0
    read_records: int = 0
    kept_records: int = 0
    is_decided_later: bool = False
    """Whether a marker behind `upto` decides about a record before it."""


def run(files: Files, job: Job) -> Iterator[int | Outcome]:
    """Do a pass: yields the bytes of each step as it is done, and at last the Outcome.

    Raises CorruptLog for a segment that cannot be read, StorageFault for a disk that refuses.
    """
    outcome = Outcome()
    key_map = KeyMap(job.map_bytes)
    yield from _fill(files, job, key_map, outcome)
    snapshots = open_at_snapshots(files, job.folder, outcome.upto)
    transactions, epochs = Transactions(job.aborted, snapshots), LeaderEpochs()
    for group in _groups(files, job, outcome.upto):
        newest = Newest(key_map.offsets)
        yield from _Cleaner(files, job, newest, transactions, epochs, group, outcome).steps()
    outcome.is_decided_later = transactions.are_open
    yield outcome


class Newest(NamedTuple):
    """The newest offset of each key, as far as it is known."""

    offsets: Mapping[bytes, int]
    tied: Mapping[bytes, int] | None = None
    """For tombstones whose horizon has passed: one stays where this has no newer offset of its key.
    None: each goes, since older records of its key go at the same time or have gone."""


def newest_offsets(files: Files, job: Job) -> dict[bytes, int]:
    """The newest offset of each key in all segments of a job. Raises as `run` does."""
    key_map = KeyMap(job.map_bytes)
    for _ in _fill(files, job, key_map, Outcome()):
        pass
    return key_map.offsets


def write_as_one(files: Files, job: Job, newest: Newest, epochs: LeaderEpochs) -> Outcome:
    """All segments of a job as one, by offsets that are known already; `epochs` are those before
    them. Raises as `run` does."""
    outcome = Outcome(upto=job.upto)
    snapshots = open_at_snapshots(files, job.folder, job.upto)
    transactions, group = Transactions(job.aborted, snapshots), list(job.segments)
    for _ in _Cleaner(files, job, newest, transactions, epochs, group, outcome).steps():
        pass
    return outcome


def _fill(files: Files, job: Job, key_map: KeyMap, outcome: Outcome) -> Iterator[int]:
    """Read the newest offset of each key in the dirty part; `outcome.upto` is how far it went."""
    first_dirty = job.first_dirty_offset
    transactions = Transactions([each for each in job.aborted if each[2] >= first_dirty])
    outcome.upto = job.upto
    for base_offset, size in job.segments:
        following = _following(job, base_offset)
        if following <= first_dirty:
            continue
        for header, chunk, at in batches(files, job.folder, base_offset, size, job.buffer_bytes):
            if header.last_offset < first_dirty:
                continue
            if key_map.is_full:
                outcome.upto = header.base_offset
                return
            if header.is_control:
                transactions.marker(header, chunk, at)
            elif not transactions.is_aborted(header) and header.record_count:
                try:
                    key_map.note(*plain_records(chunk, at, header), header)
                except ProtocolError as fault:
                    raise _rot(job.folder, header, str(fault)) from None
            outcome.read_bytes += header.size_bytes
            yield header.size_bytes


def _following(job: Job, base_offset: int) -> int:
    return next((base for base, _ in job.segments if base > base_offset), job.upto)


def _groups(files: Files, job: Job, upto: int) -> list[list[tuple[int, int]]]:
    """Neighbouring segments that fit into one, as long as anything below `upto` is in them."""
    groups: list[list[tuple[int, int]]] = []
    total = index_bytes = 0
    for base_offset, size in job.segments:
        if base_offset >= upto:
            break
        stem = f"{job.folder}/{offset_name(base_offset, '')}"
        indexes = max(files.size(stem + OFFSETS), files.size(stem + TIMES))
        span = _following(job, base_offset) - (groups[-1][0][0] if groups else base_offset)
        fits = (
            total + size <= job.segment_bytes
            and index_bytes + indexes <= job.segment_index_bytes
            and span <= INT32_MAX
        )
        if groups and fits:
            groups[-1].append((base_offset, size))
            total, index_bytes = total + size, index_bytes + indexes
        else:
            groups.append([(base_offset, size)])
            total, index_bytes = size, indexes
    return groups


class _Cleaner:
    """Writes one group of segments anew."""

    def __init__(
        self,
        files: Files,
        job: Job,
        newest: Newest,
        transactions: Transactions,
        epochs: LeaderEpochs,
        group: list[tuple[int, int]],
        outcome: Outcome,
    ) -> None:
        self._files = files
        self._job = job
        self._newest = newest.offsets
        self._tied = newest.tied
        self._group = group
        self._outcome = outcome
        self._transactions = transactions
        transactions.kept = []
        self._segment = Segment(files, job.folder, group[0][0], job.now_ms)
        self._path = self._segment.stem + LOG + CLEANED
        files.remove(self._path)
        self._file = files.open(self._path, create=True)
        self._buffers: list[Buffer] = []
        self._buffered_bytes = 0
        self._epochs = epochs
        self._stays = False
        """Whether the batch at hand stays, if need be empty."""

    def steps(self) -> Iterator[int]:
        """The bytes read and written by each step."""
        job, outcome = self._job, self._outcome
        self._file.write(0, [b""])
        for base_offset, size in self._group:
            found = batches(self._files, job.folder, base_offset, size, job.buffer_bytes)
            left = size if _following(job, base_offset) == job.upto else -1
            for header, chunk, at in found:
                done = header.size_bytes
                left -= done
                begins_epoch = self._epochs.assign(header.leader_epoch, header.base_offset)
                self._stays = begins_epoch or left == 0 or self._is_last_word(header)
                kept = self._kept(header, chunk, at)
                outcome.read_bytes += done
                outcome.read_records += header.record_count
                if kept is not None:
                    self._append(kept)
                    done += len(kept)
                yield done
        self._finish()

    def _kept(self, header: BatchHeader, chunk: bytes, at: int) -> Buffer | None:
        """What stays of a batch: itself, a smaller one, an empty one, or nothing."""
        if header.is_control:
            return self._kept_marker(header, chunk, at)
        is_aborted = self._transactions.is_aborted(header)
        whole = memoryview(chunk)[at : at + header.size_bytes]
        if header.base_offset >= self._outcome.upto:
            # The map knows nothing from here on: a tombstone must not go before what it deletes.
            self._outcome.kept_records += header.record_count
            return whole
        plain: tuple[bytes, int] = (b"", 0)
        kept: list[Place] = []
        if not is_aborted and header.record_count:
            keep_deletes = not header.has_delete_horizon or self._job.now_ms < header.base_timestamp
            plain, kept = self._survivors(header, chunk, at, self._newest, keep_deletes)
        self._outcome.kept_records += len(kept)
        if not kept:
            return self._emptied(header)
        horizon_ms = None
        if not header.has_delete_horizon and not all(place.has_value for place in kept):
            horizon_ms = _horizon_ms(self._job)
        if len(kept) == header.record_count and horizon_ms is None:
            return whole
        return rewritten(header, plain[0], kept, horizon_ms)

    def _survivors(
        self,
        header: BatchHeader,
        chunk: bytes,
        at: int,
        newest: Mapping[bytes, int],
        keep_deletes: bool,
    ) -> tuple[tuple[bytes, int], list[Place]]:
        try:
            plain = plain_records(chunk, at, header)
            kept = survivors(*plain, header, newest, keep_deletes=keep_deletes)
            if not keep_deletes and self._tied is not None:
                tied = survivors(*plain, header, self._tied)
                kept = sorted([*kept, *(each for each in tied if not each.has_value)])
            return plain, kept
        except ProtocolError as fault:
            raise _rot(self._job.folder, header, str(fault)) from None

    def _kept_marker(self, header: BatchHeader, chunk: bytes, at: int) -> Buffer | None:
        is_over = self._transactions.marker(header, chunk, at)
        whole = memoryview(chunk)[at : at + header.size_bytes]
        if not is_over or header.base_offset >= self._outcome.upto:
            return whole
        if not header.has_delete_horizon:
            plain, found = self._survivors(header, chunk, at, {}, keep_deletes=True)
            return rewritten(header, plain[0], found, _horizon_ms(self._job))
        if self._job.now_ms < header.base_timestamp:
            return whole
        return self._emptied(header)

    def _emptied(self, header: BatchHeader) -> Buffer | None:
        """A batch without records, if it stays at all; it names a producer only as its last word,
        else a producer that was forgotten would come back with an older sequence number. One that
        names none is of no transaction, and ends none: some readers refuse a marker that says
        nothing."""
        if not self._stays:
            return None
        if not self._is_last_word(header):
            attributes = header.attributes & ~(TRANSACTIONAL_BIT | CONTROL_BIT)
            header = header._replace(
                producer_id=-1, producer_epoch=-1, base_sequence=-1, attributes=attributes
            )
        return rewritten(header, b"", [], None)

    def _is_last_word(self, header: BatchHeader) -> bool:
        """Whether a producer that still counts would be forgotten with this batch."""
        last = self._job.producers.get(header.producer_id)
        if last is None:
            return False
        last_offset, epoch = last
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch

    def _append(self, batch: Buffer) -> None:
        segment = self._segment
        header = read_header(batch)
        segment.note(
            segment.size,
            header.size_bytes,
            header.last_offset,
            header.newest_timestamp,
            self._job.index_interval_bytes,
        )
        self._buffers.append(bytes(batch) if isinstance(batch, memoryview) else batch)
        self._buffered_bytes += len(batch)
        segment.size += len(batch)
        if self._buffered_bytes >= self._job.buffer_bytes:
            self._flush()

    def _flush(self) -> None:
        if self._buffers:
            self._file.write(self._segment.size - self._buffered_bytes, self._buffers)
            self._outcome.written_bytes += self._buffered_bytes
        self._buffers, self._buffered_bytes = [], 0

    def _finish(self) -> None:
        """Make the new segment safe; nothing refers to it yet."""
        self._flush()
        segment, files = self._segment, self._files
        self._file.sync()
        self._file.close()
        assert segment.offset_index is not None and segment.time_index is not None
        segment.time_index.append_if_later(
            segment.max_timestamp, segment.max_timestamp_offset - segment.base_offset
        )
        for suffix, encoded in (
            (OFFSETS, segment.offset_index.encode()),
            (TIMES, segment.time_index.encode()),
            (TRANSACTIONS, encode_aborted(self._transactions.kept)),
        ):
            files.write_atomic(segment.stem + suffix + CLEANED, encoded, sync=False)
            files.sync_path(segment.stem + suffix + CLEANED)
        self._outcome.segments.append(
            NewSegment(
                replaces=tuple(base_offset for base_offset, _ in self._group),
                size=segment.size,
                max_timestamp=segment.max_timestamp,
                max_timestamp_offset=segment.max_timestamp_offset,
            )
        )


def _horizon_ms(job: Job) -> int:
    """When a tombstone or marker may go that is seen for the first time."""
    return min(job.now_ms + job.delete_retention_ms, LATEST_HORIZON_MS)


def _rot(folder: str, header: BatchHeader, why: str) -> CorruptLog:
    return _unreadable(folder, header.base_offset, header.last_offset, why)


def _unreadable(folder: str, first_offset: int, last_offset: int, why: str) -> CorruptLog:
    return CorruptLog(
        f"{folder}: cannot be compacted, the batch at offset {first_offset} is damaged ({why}). "
        "Restore the file, or delete the records before it.",
        path=folder,
        position=-1,
        first_offset=first_offset,
        last_offset=last_offset,
    )


def batches(
    files: Files, folder: str, base_offset: int, size: int, buffer_bytes: int
) -> Iterator[tuple[BatchHeader, bytes, int]]:
    """Every batch of a segment: header, and the chunk of the file that has it whole at a position.

    A chunk has `buffer_bytes`, or more for a batch that is larger. Raises CorruptLog."""
    file: File = files.open(f"{folder}/{offset_name(base_offset, LOG)}", write=False)
    position, wanted = 0, buffer_bytes
    try:
        while position < size:
            asked = min(wanted, size - position)
            chunk = bytes(file.read_blocking(position, asked))
            if len(chunk) < asked:
                raise _unreadable(folder, base_offset, base_offset, f"{file.path} ends early")
            at, wanted = 0, buffer_bytes
            while len(chunk) - at >= BATCH_OVERHEAD:
                header = _header(folder, chunk, at, base_offset)
                if at + header.size_bytes > len(chunk):
                    wanted = max(buffer_bytes, header.size_bytes)
                    break
                if not crc_is_valid(chunk, at, header.size_bytes):
                    # Rot must neither decide what stays nor get a new, sound checksum.
                    raise _rot(folder, header, "its checksum does not match")
                yield header, chunk, at
                at += header.size_bytes
            if at == 0 and wanted > size - position:
                raise _unreadable(
                    folder, base_offset, base_offset, f"{file.path} ends within a batch"
                )
            position += at
    finally:
        file.close()


def _header(folder: str, chunk: bytes, at: int, base_offset: int) -> BatchHeader:
    try:
        header = read_header(chunk, at)
    except ProtocolError as fault:
        raise _unreadable(folder, base_offset, base_offset, str(fault)) from None
    if header.magic != MAGIC:
        raise _unreadable(folder, base_offset, base_offset, f"magic is {header.magic}")
    return header
