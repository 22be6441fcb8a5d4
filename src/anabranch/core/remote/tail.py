"""The remote part of one log as its readers see it: a tail of finished segments.

What: finds the segment that has an offset, the place of its batch by the offset index, and reads
whole batches from there; answers by time, by epoch and about aborted transactions from the other
indexes and from the facts. Rules kept: of offsets that several segments have, the one that reaches
farthest answers, and only where its epochs are the log's; a tail ends where the first gap is; what
is read begins and ends with whole batches; a segment that is missing, cut or changed refuses with
KAFKA_STORAGE_ERROR for a moment, and takes nothing offline. Source: KIP-405. Not here: what is in
memory (`cache.py`), which part of a log is asked (`core.partition.composite`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.errors import ApiError, ErrorCode, ProtocolError
from anabranch.core.log.epochs import LeaderEpochs
from anabranch.core.log.indexes import NO_TIMESTAMP
from anabranch.core.log.lookup import AbortedTransaction, TimestampOffset
from anabranch.core.log.record_walk import first_not_older
from anabranch.core.log.scan import BadBatch, sound_header
from anabranch.core.log.segment import LOG, OFFSETS, TIMES, TRANSACTIONS, offset_name
from anabranch.core.partition.tail import UNKNOWN_EPOCH, Tail
from anabranch.core.remote.keys import segment_folder
from anabranch.core.remote.lineage import Lineage, Span, agreed_spans, joined
from anabranch.core.wire.batch import BATCH_OVERHEAD, BatchHeader
from anabranch.core.wire.records import decode_records

if TYPE_CHECKING:
    from anabranch.core.remote.cache import RemoteCache
    from anabranch.core.remote.segments import RemoteSegment
    from anabranch.core.types import Buffer

MOST_BYTES = 8 << 20
"""What one read takes at most, whatever its reader wants: it is in memory until it is sent."""
PROBE_BYTES = 64 << 10
"""Looked into at a time where the batch of a timestamp is searched."""


class Stretch(NamedTuple):
    """Offsets `[first, end)` of the log, and the segment that answers for them."""

    first: int
    end: int
    segment: RemoteSegment


class ReadableOf(NamedTuple):
    """The facts that a tail comes from."""

    segments: tuple[RemoteSegment, ...]
    lineage: Lineage
    log_start: int


class Readable(NamedTuple):
    """What some facts let readers find; of many segments it takes a moment to tell."""

    of: ReadableOf
    stretches: list[Stretch]
    epochs: LeaderEpochs


def readable(of: ReadableOf) -> Readable:
    """What readers find. It may be asked in a thread."""
    found, epochs = list(_covering(*of)), LeaderEpochs()
    for first, end, segment in found:
        for entry in segment.leader_epochs:
            if entry.start_offset < end and entry.epoch > epochs.latest:
                epochs.assign(entry.epoch, max(entry.start_offset, first))
    return Readable(of, found, epochs)


class RemoteTail(Tail):
    """All that is FINISHED of one partition, as far as it has no gap."""

    def __init__(self, cluster_id: str, cache: RemoteCache) -> None:
        self._cluster_id = cluster_id
        self._cache = cache
        self._of: ReadableOf | None = None
        self._stretches: list[Stretch] = []
        self._epochs = LeaderEpochs()

    def take(self, segments: tuple[RemoteSegment, ...], lineage: Lineage, log_start: int) -> None:
        """Use these facts from now on."""
        of = ReadableOf(segments, lineage, log_start)
        if not self.is_of(of):
            self.use(readable(of))

    def is_of(self, of: ReadableOf) -> bool:
        """Whether these very facts are used already."""
        used = self._of
        return used is not None and used.segments is of.segments and used[1:] == of[1:]

    def use(self, found: Readable) -> None:
        """Use what was found in some facts."""
        self._of, self._stretches, self._epochs = found

    @property
    def end_offset(self) -> int:
        return self._stretches[-1].end if self._stretches else 0

    # Reading.

    def read(self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool) -> Buffer:
        if self._at(offset) is None:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        most = min(max_bytes, MOST_BYTES)
        for stretch in self._stretches[self._index(offset) :]:
            begin = max(offset, stretch.first)
            found = self._batches(stretch, begin, most, upto, at_least_one)
            if found is not None:
                first, end = found
                return self._bytes(stretch.segment, first, end) if end > first else b""
        return b""

    def _batches(
        self, stretch: Stretch, offset: int, most: int, upto: int, at_least_one: bool
    ) -> tuple[int, int] | None:
        """Where the batches to be read begin and end; None where the stretch has none from an
        offset on: compaction of a classic log takes the last ones of a segment too."""
        start, before = self._start(stretch.segment, offset)
        first = None
        end = start
        for position, header in self._headers(stretch, start, most + before):
            if header.last_offset < offset:
                continue
            if header.base_offset >= stretch.end:
                break
            if header.last_offset >= upto:
                return (start, start) if first is None else (first, end)
            if first is None:
                first = position
                if header.size_bytes > most and not at_least_one:
                    return first, first
            elif position + header.size_bytes - first > most:
                break
            end = position + header.size_bytes
            if end - first >= most:
                break
        return None if first is None else (first, end)

    def _start(self, segment: RemoteSegment, offset: int) -> tuple[int, int]:
        """Where a batch begins, at or before the one that holds an offset, and how many bytes
        behind it that one may begin: they are read with it, and not before it."""
        if offset <= segment.start_offset:
            return 0, 0
        index = self._cache.offset_index(self._name(segment, OFFSETS), segment.byte_size)
        relative = offset - segment.start_offset
        return index.position_before(relative), min(index.bytes_before(relative), MOST_BYTES)

    def _headers(
        self, stretch: Stretch, position: int, most: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Batch headers from a position on; about `most` bytes are looked at in one piece."""
        segment = stretch.segment
        name = self._name(segment, LOG)
        while position < segment.byte_size:
            length = min(max(most, BATCH_OVERHEAD), segment.byte_size - position)
            piece = memoryview(self._cache.piece(name, position, length, segment.byte_size))
            at = 0
            while at + BATCH_OVERHEAD <= len(piece):
                try:
                    header = sound_header(piece, at, position + at)
                except BadBatch as bad:
                    raise self._damaged(name, bad) from None
                if not self._belongs(stretch, header, position + at):
                    why = f"offset {header.base_offset} does not belong there"
                    raise self._damaged(name, BadBatch(position + at, why))
                yield position + at, header
                at += header.size_bytes
            if at == 0:
                raise self._damaged(name, BadBatch(position, "the segment is cut"))
            position += at

    def _belongs(self, stretch: Stretch, header: BatchHeader, position: int) -> bool:
        segment = stretch.segment
        return (
            segment.start_offset <= header.base_offset <= header.last_offset < segment.end_offset
            and position + header.size_bytes <= segment.byte_size
        )

    def _bytes(self, segment: RemoteSegment, first: int, end: int) -> Buffer:
        return self._cache.piece(self._name(segment, LOG), first, end - first, segment.byte_size)

    def _damaged(self, name: str, bad: BadBatch) -> ApiError:
        why = f"object {name} is damaged at position {bad.position}: {bad.why}"
        return self._cache.damaged(name, why)

    # Looking up.

    def aborted_transactions(self, first: int, upto: int) -> list[AbortedTransaction]:
        found = []
        for stretch in self._stretches[max(0, self._index(first)) :]:
            if not stretch.segment.has_aborted:
                continue
            for entry in self._cache.aborted(self._name(stretch.segment, TRANSACTIONS)):
                if not stretch.first <= entry.last_offset < stretch.end:
                    continue  # another segment answers for its marker
                if entry.last_offset >= first and entry.first_offset < upto:
                    found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
                if entry.last_stable_offset >= upto:
                    return found
        return found

    def epoch_of(self, offset: int) -> int:
        return self._epochs.epoch_of(offset) if offset < self.end_offset else UNKNOWN_EPOCH

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self._epochs.end_offset(min(epoch, self._epochs.latest), self.end_offset)

    def offset_for_timestamp(self, timestamp: int, first: int) -> TimestampOffset | None:
        for stretch in self._stretches:
            if stretch.end > first and stretch.segment.max_timestamp >= timestamp:
                found = self._first_not_older(stretch, timestamp, max(first, stretch.first))
                if found is not None:
                    return found
        return None

    def max_timestamp_offset(self, first: int) -> TimestampOffset | None:
        best: TimestampOffset | None = None
        there = [each for each in self._stretches if each.end > first]
        for stretch in sorted(there, key=_newest, reverse=True):
            newest = stretch.segment.max_timestamp
            if newest < 0 or (best is not None and newest < best.timestamp):
                break
            begin = max(first, stretch.first)
            found = self._first_not_older(stretch, newest, begin)
            if found is None:  # that record is deleted, or is none of the log's
                newest = self._newest_from(stretch, begin)
                found = self._first_not_older(stretch, newest, begin) if newest >= 0 else None
            if found is not None and (best is None or found.timestamp > best.timestamp):
                best = found
        return best

    def _newest_from(self, stretch: Stretch, first: int) -> int:
        """The largest timestamp of a stretch from an offset on."""
        segment, newest = stretch.segment, NO_TIMESTAMP
        start, _ = self._start(segment, max(first, segment.start_offset))
        for position, header in self._headers(stretch, start, PROBE_BYTES):
            if header.base_offset >= stretch.end:
                break
            if header.last_offset < first or header.newest_timestamp <= newest:
                continue
            if first <= header.base_offset and header.last_offset < stretch.end:
                newest = header.newest_timestamp
                continue
            batch = bytes(self._bytes(segment, position, position + header.size_bytes))
            try:
                records = decode_records(batch)
            except ProtocolError as fault:
                bad = BadBatch(position, str(fault))
                raise self._damaged(self._name(segment, LOG), bad) from None
            there = [each.timestamp for each in records if first <= each.offset < stretch.end]
            newest = max([newest, *there])
        return newest

    def _first_not_older(
        self, stretch: Stretch, timestamp: int, first: int
    ) -> TimestampOffset | None:
        segment = stretch.segment
        times = self._cache.time_index(self._name(segment, TIMES))
        relative = max(times.offset_before(timestamp), first - segment.start_offset)
        start, _ = self._start(segment, segment.start_offset + relative)
        for position, header in self._headers(stretch, start, PROBE_BYTES):
            if header.base_offset >= stretch.end:
                break
            if header.max_timestamp < timestamp or header.last_offset < first:
                continue
            batch = bytes(self._bytes(segment, position, position + header.size_bytes))
            try:
                found = first_not_older(batch, header, timestamp, first)
            except ProtocolError as fault:
                bad = BadBatch(position, str(fault))
                raise self._damaged(self._name(segment, LOG), bad) from None
            if found is not None and found[1] < stretch.end:
                return TimestampOffset(*found, header.leader_epoch)
        return None

    # Finding.

    def _index(self, offset: int) -> int:
        return bisect_right(self._stretches, offset, key=_first) - 1

    def _at(self, offset: int) -> Stretch | None:
        index = self._index(offset)
        if index < 0 or offset >= self._stretches[index].end:
            return None
        return self._stretches[index]

    def _name(self, segment: RemoteSegment, suffix: str) -> str:
        folder = segment_folder(self._cluster_id, segment.key, segment.segment_id)
        return folder + offset_name(segment.start_offset, suffix)


def first_offset(
    segments: Iterable[RemoteSegment], lineage: Lineage, log_start: int, local_start: int
) -> int:
    """Where a log begins of which no checkpoint told it: with what is remote, or, where nothing is,
    with the local part."""
    first = next(_covering(segments, lineage, log_start), None)
    return local_start if first is None else min(first.first, local_start)


def _covering(
    segments: Iterable[RemoteSegment], lineage: Lineage, log_start: int
) -> Iterator[Stretch]:
    """Stretches without a gap, from the log start on, or from the first offset behind it."""
    spans = sorted(
        (
            Stretch(span.first, span.end, segment)
            for segment in segments
            if segment.is_finished
            for span in _spans(segment, lineage)
            if span.end > log_start
        ),
        key=_first,
    )
    begin = max(spans[0].first, log_start) if spans else 0
    best: Stretch | None = None
    for each in spans:
        if each.first > begin and best is not None and best.end > begin:
            yield best._replace(first=begin)
            begin = best.end
        if each.first > begin:
            return
        if best is None or each.end > best.end:
            best = each
    if best is not None and best.end > begin:
        yield best._replace(first=begin)


def _spans(segment: RemoteSegment, lineage: Lineage) -> list[Span]:
    """Offsets that count. A log that was copied from the middle on does not know which epochs were
    in force before: there, all that is not of a later one counts."""
    spans = agreed_spans(segment, lineage)
    earliest = lineage.entries[0].epoch if lineage.entries else segment.leader_epochs[-1].epoch
    ends = [each.start_offset for each in segment.leader_epochs[1:]]
    for entry, end in zip(segment.leader_epochs, [*ends, segment.end_offset], strict=True):
        if entry.epoch <= earliest and entry.start_offset < lineage.known_from:
            spans.append(Span(entry.start_offset, min(end, lineage.known_from)))
    return joined(spans)


def _first(stretch: Stretch) -> int:
    return stretch.first


def _newest(stretch: Stretch) -> int:
    return stretch.segment.max_timestamp
