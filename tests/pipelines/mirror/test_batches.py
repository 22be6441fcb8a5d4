"""Parts to batches for the target: compiled and plain code give the same records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.mirror.test_restamp import FITS, batches, by_kafka_python, logs, seen

from anabranch.client.fetch import whole_batches
from anabranch.core.mirror.restamp import Fit
from anabranch.core.wire.batch import read_header, walk
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.control import build_end_marker
from anabranch.core.wire.records import Record, build_batch, decode_records
from anabranch.pipelines.mirror.batches import DamagedBatch, Packer
from anabranch.pipelines.mirror.reader import FetchedPart

FIT = Fit(1 << 20)


def part_of(log, start=0, aborted=()):
    """A fetched part."""
    _, following = whole_batches(log)
    return FetchedPart(("t", 0), start, following, memoryview(bytes(log)), aborted, following)


def packed(part, fit, *, compiled, read_committed=False):
    """What becomes of a part: records without offsets, and their offsets at the source."""
    found, offsets = [], []
    packer = Packer(read_committed=read_committed, compiled=compiled)
    for batch, runs in packer.pack(part, fit):
        header = read_header(batch)
        assert header.record_count == header.last_offset_delta + 1
        assert not header.attributes & ~7 and len(batch) <= fit.limit_bytes
        decoded = decode_records(batch)
        assert header.max_timestamp >= max(each.timestamp for each in decoded)
        assert by_kafka_python(batch) == seen(decoded)
        found += seen(decoded)
        offsets += [run.first + each for run in runs for each in range(run.records)]
    return found, offsets


@pytest.mark.slow
@given(logs(), FITS, st.integers(0, 20))
@settings(deadline=None, max_examples=150)
def test_compiled_and_plain_code_agree_and_begin_where_they_are_told(log, fit, start):
    if whole_batches(log)[1] <= start:
        return
    part = part_of(log, start)
    records = [each for position, _ in walk(log) for each in decode_records(log, position)]
    wanted = [each for each in records if each.offset >= start]
    for compiled in (False, True):
        found, offsets = packed(part, fit, compiled=compiled)
        assert found == seen(wanted)
        assert offsets == [each.offset for each in wanted]


@given(batches(), st.integers(0, 400), st.integers(0, 255))
@settings(deadline=None, max_examples=200)
def test_a_changed_byte_is_told_and_not_mirrored(batch, at, byte):
    at = 21 + at % (len(batch) - 21)
    if batch[at] == byte:
        return
    batch[at] = byte
    part = FetchedPart(("t", 0), 0, 99, memoryview(bytes(batch)), (), 99)
    with pytest.raises(DamagedBatch, match=r"t-0: the batch of offsets .* checksum"):
        list(Packer(read_committed=False).pack(part, FIT))


def test_aborted_records_go_under_read_committed_only_and_markers_never():
    records = [Record(0, 1, b"k", b"aborted")]
    log = build_batch(records, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    marker = build_end_marker(
        committed=False, producer_id=5, producer_epoch=0, base_offset=1, leader_epoch=0,
        coordinator_epoch=0, now_ms=1,
    )  # fmt: skip
    kept = build_batch([Record(2, 1, b"k", b"kept")], base_offset=2)
    part = part_of(log + marker + kept, aborted=((5, 0),))
    assert packed(part, FIT, compiled=True, read_committed=True)[1] == [2]
    assert packed(part, FIT, compiled=True)[1] == [0, 2]


def test_small_batches_become_one_with_one_run():
    log = bytearray()
    for first in range(0, 1_000, 10):
        records = [
            Record(each, 1_000 - each, b"k", b"v" * each) for each in range(first, first + 10)
        ]
        log += build_batch(records, base_offset=first, codec=Codec.LZ4)
    packer = Packer(read_committed=False)
    made = list(packer.pack(part_of(log), FIT))
    assert len(made) == 1 and made[0].runs == ((0, 1_000),)
    assert packer.opened == {"small": 100}
