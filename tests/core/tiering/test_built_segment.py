"""A segment of diskless batches is byte for byte that of a log to which they were appended."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.log.support import NOW_MS, append, batch, new_log, patiently

from anabranch.core.diskless.assembly import Damaged
from anabranch.core.diskless.rows import LogKey, Run
from anabranch.core.errors import StorageFault
from anabranch.core.log.producer_snapshot import decode_snapshot
from anabranch.core.log.segment import LOG, SNAPSHOT, offset_name
from anabranch.core.remote.keys import file_names
from anabranch.core.remote.segment_files import Try, describe, local_segments
from anabranch.core.remote.segments import SegmentId
from anabranch.core.tiering import built_segment
from anabranch.core.tiering.built_segment import BuiltSegment, build
from anabranch.core.tiering.plan import PlannedSegment
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(bytes(15) + b"\1"), 0)
ID = SegmentId(bytes(16))


class Object:
    """Batches of one partition as they lie in objects, and the runs that name them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.held = bytearray()
        self.offset = 0
        self.sequences = {1: 0, 2: 0}

    def run(self) -> tuple[Run, list[bytearray]]:
        first, position, batches = self.offset, len(self.held), []
        for _ in range(self.random.randint(1, 4)):
            made = self._batch(self.random.randint(1, 5))
            batches.append(made)
            self.held += made
        size = len(self.held) - position
        return Run(KEY, first, self.offset, 1, "one", position, size, NOW_MS), batches

    def _batch(self, count: int) -> bytearray:
        fields = {}
        if self.random.random() < 0.6:
            producer_id = self.random.choice((1, 2))
            fields = {
                "producer_id": producer_id, "producer_epoch": 0,
                "base_sequence": self.sequences[producer_id],
            }  # fmt: skip
            self.sequences[producer_id] += count
        made = batch(
            count, self.random.choice((10, 200)), NOW_MS + self.random.randint(-50, 50), **fields
        )
        self.offset += count
        return made

    def bytes_of(self, run: Run) -> bytes:
        return bytes(self.held[run.byte_offset : run.byte_offset + run.byte_size])


def bytes_in(built: BuiltSegment, name: str) -> bytes:
    return b"".join(map(bytes, built.files[name]))


@pytest.mark.parametrize("seed", range(30))
def test_segments_are_those_of_a_log_with_the_same_batches(seed, monkeypatch):
    monkeypatch.setattr(built_segment, "INDEX_INTERVAL_BYTES", 100)
    random = Random(seed)
    lies, log = Object(random), new_log(index_interval_bytes=100)
    snapshot, built = b"", []
    for _ in range(random.randint(1, 4)):
        start, runs = lies.offset, []
        for _ in range(random.randint(1, 5)):
            run, batches = lies.run()
            runs.append(run)
            for each in batches:
                append(log, bytearray(each))
        planned = PlannedSegment(start, lies.offset, tuple(runs))
        built.append(build(KEY, ID, planned, lies.bytes_of, snapshot))
        snapshot = bytes_in(built[-1], offset_name(lies.offset, SNAPSHOT))
        log.roll(NOW_MS)
    closed = [each for each in patiently(lambda: local_segments(log)) if not each.is_active]
    assert len(closed) == len(built)
    for mine, local in zip(built, closed, strict=True):
        theirs, files = patiently(lambda one=local: describe(log, one, Try(ID, -1, -1)))
        assert mine.segment == theirs._replace(key=KEY)
        assert list(mine.files) == file_names(theirs, has_aborted=False)
        names = file_names(theirs, has_aborted=False)
        records = log.files.open(files.log_path).read_blocking(0, theirs.byte_size)
        assert bytes_in(mine, offset_name(theirs.start_offset, LOG)) == bytes(records)
        for name in names[1:]:
            if name.endswith(SNAPSHOT):
                assert producers(bytes_in(mine, name)) == producers(files.others[name])
            else:
                assert bytes_in(mine, name) == files.others[name], name


def producers(encoded: bytes) -> list[tuple[int, ...]]:
    """What a snapshot says but for when producers wrote: a log knows its own clock."""
    states = decode_snapshot(encoded)
    assert states is not None
    return sorted(
        (each.producer_id, each.epoch, each.last_sequence, each.last_offset) for each in states
    )


def test_a_damaged_batch_ends_the_try():
    lies = Object(Random(1))
    run, _ = lies.run()
    lies.held[-1] ^= 1
    planned = PlannedSegment(0, run.end_offset, (run,))
    with pytest.raises(Damaged, match="does not match its checksum"):
        build(KEY, ID, planned, lies.bytes_of, b"")


def test_a_damaged_snapshot_ends_the_try():
    lies = Object(Random(1))
    run, _ = lies.run()
    planned = PlannedSegment(0, run.end_offset, (run,))
    with pytest.raises(StorageFault, match="snapshot"):
        build(KEY, ID, planned, lies.bytes_of, b"\0\1rot")


def test_a_producer_that_was_silent_for_a_day_is_left_out():
    lies = Object(Random(1))
    lies.sequences = {1: 0, 2: 0}
    made = batch(1, timestamp=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=0)
    later = batch(1, timestamp=NOW_MS + built_segment.PRODUCERS_KEPT_MS)
    lies.held = made + later
    run = Run(KEY, 0, 2, 1, "one", 0, len(lies.held), NOW_MS)
    built = build(KEY, ID, PlannedSegment(0, 2, (run,)), lies.bytes_of, b"")
    assert producers(bytes_in(built, offset_name(2, SNAPSHOT))) == []
