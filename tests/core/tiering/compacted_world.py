"""A diskless partition's segments in memory, and passes over them as a job makes them."""

from __future__ import annotations

from itertools import count

from tests.core.log.support import NOW_MS, append, marker, new_log, patiently, sync

from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.log.checkpoints import LEADER_EPOCHS
from anabranch.core.log.indexes import decode_aborted
from anabranch.core.log.segment import LOG, SNAPSHOT, TRANSACTIONS, offset_name
from anabranch.core.remote.keys import file_names
from anabranch.core.remote.segment_files import Try, describe, local_segments
from anabranch.core.remote.segments import RemoteSegment, SegmentId, SegmentState
from anabranch.core.tiering.compacted_segment import Files, Group, Live, compacted, keys_of
from anabranch.core.tiering.compaction_plan import Compactable, Pass, Tiered, grouped, next_pass
from anabranch.core.types import TopicId
from anabranch.core.wire.batch import walk
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.control import end_marker
from anabranch.core.wire.records import Record, build_batch, decode_records

KEY = LogKey(TopicId(bytes(15) + b"\1"), 0)
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DAY_MS = 86_400_000


class Partition:
    """Records go into a log, whose closed segments become those of the store."""

    def __init__(self, **settings) -> None:
        self.log = new_log(index_interval_bytes=100, **settings)
        self.now_ms = NOW_MS
        self.segments: list[RemoteSegment] = []
        self.files: dict[bytes, dict[str, bytes]] = {}
        self.numbers = count(1)
        self.sequences: dict[int, int] = {}

    # Writing.

    def put(self, *pairs, codec=Codec.NONE, producer_id=-1, transactional=False) -> int:
        """One batch of (key, value) pairs; its first offset."""
        fields = {}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(pairs)
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        records = [Record(at, self.now_ms, key, value) for at, (key, value) in enumerate(pairs)]
        made = build_batch(records, codec=codec, transactional=transactional, **fields)
        return append(self.log, made, now_ms=self.now_ms)

    def end(self, producer_id: int, *, committed: bool) -> None:
        """End a transaction."""
        made = marker(producer_id, committed=committed)
        self.log.append_as_leader(made, leader_epoch=0, now_ms=self.now_ms, client=False)

    def tier(self) -> None:
        """What was written becomes a segment of the store."""
        if self.log.end_offset == self.tiered_end:
            return
        self.log.roll(self.now_ms)
        sync(self.log)
        for local in patiently(lambda: local_segments(self.log)):
            if local.is_active or local.start_offset < self.tiered_end:
                continue
            found = patiently(lambda one=local: describe(self.log, one, Try(self.new_id(), 1, 0)))
            segment, files = found
            held = self.log.files.open(files.log_path).read_blocking(0, segment.byte_size)
            name = offset_name(segment.start_offset, LOG)
            self.files[segment.segment_id] = {name: bytes(held), **files.others}
            self.segments.append(segment._replace(key=KEY, state=FINISHED))

    def new_id(self) -> SegmentId:
        """Of a try."""
        return SegmentId(next(self.numbers).to_bytes(16, "big"))

    @property
    def tiered_end(self) -> int:
        """Where the tiered part ends."""
        return self.segments[-1].end_offset if self.segments else 0

    # Compaction.

    def planned(self, most_bytes: int = 1 << 20, **settings) -> Pass:
        """The next pass, worth it or not."""
        wanted = {
            "least_ratio": 0.0, "least_lag_ms": 0, "most_lag_ms": 2**63 - 1,
            "delete_retention_ms": DAY_MS, **settings,
        }  # fmt: skip
        state = LogState(0, self.log.end_offset, 0, self.tiered_end)
        held = Tiered(state, self.segments, self.now_ms)
        return next_pass(held, Compactable(KEY, most_bytes=most_bytes, **wanted))

    def compact(self, most_bytes: int = 1 << 20, delete_retention_ms: int = DAY_MS) -> list[bool]:
        """One pass, and which of its groups have changed."""
        return self.swap(self.made(most_bytes, delete_retention_ms))

    def made(self, most_bytes: int = 1 << 20, delete_retention_ms: int = DAY_MS, **settings):
        """Each group of a pass, and what takes its place."""
        found = self.planned(most_bytes, **settings)
        if not found.segments:
            return []
        groups = [
            self.read(found, each, delete_retention_ms)
            for each in grouped(found.segments, most_bytes)
        ]
        keys = [keys_of(*each) for each in groups]
        newest: dict[bytes, int] = {}
        groups_of: dict[bytes, int] = {}
        for each in keys:
            newest.update(each)
            for key in each:
                groups_of[key] = groups_of.get(key, 0) + 1
        result = []
        for (group, files), held in zip(groups, keys, strict=True):
            live = {at for key, at in held.items() if newest[key] == at}
            alone = {at for key, at in held.items() if at in live and groups_of[key] == 1}
            told = Live(live, alone if found.forgets else set())
            result.append((group, compacted(group, files, told, self.new_id())))
        return result

    def swap(self, made) -> list[bool]:
        """Put segments in the place of groups."""
        changed = []
        for group, built in made:
            held = {name: b"".join(map(bytes, each)) for name, each in built.files.items()}
            segment = built.segment._replace(state=FINISHED)
            assert list(held) == file_names(segment, has_aborted=segment.has_aborted)
            self.files[segment.segment_id] = held
            at = self.segments.index(group.segments[0])
            old = [self.files[each.segment_id] for each in group.segments]
            self.segments[at : at + len(group.segments)] = [segment]
            log = offset_name(segment.start_offset, LOG)
            changed.append(len(old) > 1 or old[0][log] != held[log])
        return changed

    def read(self, found: Pass, segments, delete_retention_ms: int) -> tuple[Group, Files]:
        """A group and its files, as a task reads them."""
        at = found.segments.index(segments[0])
        before = found.segments[at - 1] if at else None
        ends = {each.end_offset: each for each in (*segments, found.segments[-1])}
        if before is not None:
            ends[before.end_offset] = before
        aborted = [
            entry
            for each in found.segments
            if each.has_aborted
            for entry in decode_aborted(
                self.file(each, offset_name(each.start_offset, TRANSACTIONS))
            )
        ]
        group = Group(
            segments, found.mark, self.now_ms, delete_retention_ms,
            before.leader_epochs[-1].epoch if before else -1,
            sorted(aborted, key=lambda each: each.first_offset),
        )  # fmt: skip
        files = Files(
            [self.file(each, offset_name(each.start_offset, LOG)) for each in segments],
            {end: self.file(each, offset_name(end, SNAPSHOT)) for end, each in ends.items()},
            self.file(segments[-1], LEADER_EPOCHS),
        )
        return group, files

    def file(self, segment: RemoteSegment, name: str) -> bytes:
        """Of a segment."""
        return self.files[segment.segment_id][name]

    # Reading.

    def records(self, segments=None) -> dict[int, tuple[bytes, bytes | None]]:
        """(key, value) by offset, as a reader of what is committed gets them."""
        found: dict[int, tuple[bytes, bytes | None]] = {}
        chosen = self.segments if segments is None else segments
        ranges = []
        for each in chosen:
            if each.has_aborted:
                name = offset_name(each.start_offset, TRANSACTIONS)
                ranges += decode_aborted(self.file(each, name))
        firsts = sorted(ranges, key=lambda each: each.first_offset)
        aborted: set[int] = set()
        for segment in chosen:
            content = self.file(segment, offset_name(segment.start_offset, LOG))
            assert len(content) == segment.byte_size > 0
            following = segment.start_offset
            for position, header in walk(content):
                assert following <= header.base_offset <= header.last_offset < segment.end_offset
                following = header.next_offset
                while firsts and firsts[0].first_offset <= header.last_offset:
                    aborted.add(firsts.pop(0).producer_id)
                if header.is_control:
                    decision = end_marker(content, position)
                    if decision is not None and not decision.committed:
                        aborted.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborted):
                    for one in decode_records(content, position):
                        found[one.offset] = (one.key, one.value)
            assert following == segment.end_offset, "a reader comes to each segment's end"
        return found

    def state(self, segments=None) -> dict[bytes, bytes]:
        """The value of each key that has one."""
        found: dict[bytes, bytes] = {}
        for _, (key, value) in sorted(self.records(segments).items()):
            found.pop(key, None)
            if value is not None:
                found[key] = value
        return found
