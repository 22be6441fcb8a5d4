"""Batches made fit for another log: what readers see stays, what brokers refuse goes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from anabranch.core.mirror.repack import RecordTooLarge, repacked
from anabranch.core.mirror.restamp import (
    Fit,
    Group,
    Opened,
    Run,
    Stamp,
    codec_of,
    groups_of,
    must_open,
    restamped,
    runs_of,
)
from anabranch.core.wire.batch import (
    DELETE_HORIZON_BIT,
    crc_is_valid,
    patch,
    read_header,
    renew_crc,
    walk,
)
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import Record, build_batch, decode_records

TEXT = st.none() | st.binary(max_size=30)
HEADERS = st.lists(st.tuples(st.text(max_size=6), TEXT), max_size=2).map(tuple)
FIT = Fit(limit_bytes=1 << 20)


@st.composite
def batches(draw, start=0):
    """A batch as a log may have it: with holes, in a codec, of a transaction, with times of the
    leader, with a delete horizon."""
    gaps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=1, max_size=12))
    offset, records = start - 1, []
    for gap in gaps:
        offset += gap
        records.append(Record(offset, draw(st.integers(0, 2**41)), draw(TEXT), draw(TEXT),
                              draw(HEADERS)))  # fmt: skip
    is_transactional = draw(st.booleans())
    batch = build_batch(
        records, base_offset=start, codec=draw(st.sampled_from(Codec)), leader_epoch=3,
        producer_id=77, producer_epoch=2, base_sequence=5, transactional=is_transactional,
        log_append_time=draw(st.none() | st.just(5_000)),
    )  # fmt: skip
    if draw(st.booleans()):
        batch[22] |= DELETE_HORIZON_BIT
        renew_crc(batch, 0, len(batch))
    return batch


@st.composite
def logs(draw):
    """Several batches that follow each other."""
    log, start = bytearray(), 0
    for _ in range(draw(st.integers(1, 6))):
        start += draw(st.integers(0, 3))
        batch = draw(batches(start))
        start = read_header(batch).next_offset
        log += batch
    return log


def seen(records):
    """What a consumer sees of records, without their offsets."""
    return [each[1:] for each in records]


def by_kafka_python(batch):
    """The same as kafka-python, a decoder that is not ours, sees it."""
    return [
        (each.timestamp, each.key, each.value, tuple(map(tuple, each.headers)))
        for each in DefaultRecordBatch(bytes(batch))
    ]


def mirrored(log, fit):
    """The batches of a log as a mirror sends them."""
    for group in groups_of(walk(log), fit):
        if group.is_opened:
            positions = [position for position, _ in group.members]
            yield from repacked(log, positions, codec_of(group, fit), fit.limit_bytes)
        else:
            yield restamped(log, *group.members[0], Stamp(9, 1, 0))


FITS = st.builds(
    Fit, limit_bytes=st.sampled_from([300, 2_000, 1 << 20]), codec=st.none() | st.sampled_from(Codec),
    small_bytes=st.sampled_from([0, 200, 16 << 10]), merged_bytes=st.sampled_from([400, 1 << 19]),
)  # fmt: skip


@given(logs(), FITS)
@settings(deadline=None, max_examples=300)
def test_a_reader_of_the_target_sees_the_records_of_the_source(log, fit):
    source = [each for position, _ in walk(log) for each in decode_records(log, position)]
    found, offsets = [], []
    for batch, runs in mirrored(log, fit):
        header = read_header(batch)
        assert header.base_offset == 0 and header.leader_epoch == -1
        assert header.record_count == header.last_offset_delta + 1
        assert not header.attributes & ~7, "no timestamp type, transaction, control, delete horizon"
        assert crc_is_valid(batch, 0, len(batch))
        if fit.codec is not None:
            assert header.codec == fit.codec
        decoded = decode_records(batch)
        assert by_kafka_python(batch) == seen(decoded)
        assert sum(run.records for run in runs) == len(decoded)
        found += decoded
        offsets += [run.first + each for run in runs for each in range(run.records)]
    assert seen(found) == seen(source)
    assert offsets == [each.offset for each in source]


@given(batches(), st.booleans())
def test_a_stamp_puts_the_mirrors_own_producer_in(batch, is_transactional):
    header = read_header(batch)
    made = restamped(batch, 0, header, Stamp(9, 1, 4, is_transactional)).batch
    after = read_header(made)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (9, 1, 4)
    assert after.is_transactional is is_transactional
    assert after.max_timestamp == header.max_timestamp
    assert crc_is_valid(made, 0, len(made))


def one(count=3, **more):
    """A batch of some records."""
    return build_batch([Record(each, 1_000, b"k", b"v" * 40) for each in range(count)], **more)


def test_a_sound_batch_is_not_opened_and_others_say_why():
    sound = read_header(one())
    assert must_open(sound, FIT) is None
    assert must_open(sound, FIT._replace(codec=Codec.LZ4)) is Opened.CODEC
    assert must_open(sound, FIT._replace(limit_bytes=100)) is Opened.TOO_LARGE
    assert must_open(read_header(one(log_append_time=5)), FIT) is Opened.APPEND_TIME
    holes = build_batch([Record(0, 1, b"", b""), Record(4, 1, b"", b"")])
    assert must_open(read_header(holes), FIT) is Opened.HOLES


def log_of(*all_batches):
    """Batches one after the other."""
    log, start = bytearray(), 0
    for batch in all_batches:
        patch(batch, 0, start, 0)
        start = read_header(batch).next_offset
        log += batch
    return log


def test_small_batches_travel_together_and_large_ones_alone():
    large = one(1_000)
    log = log_of(one(), one(), large, one(), one(2))
    shapes = [(len(group.members), group.is_opened) for group in groups_of(walk(log), FIT)]
    assert shapes == [(2, True), (1, False), (2, True)]


def test_a_small_batch_without_company_is_not_opened():
    assert list(groups_of(walk(one()), FIT)) == [Group([(0, read_header(one()))], False)]


def test_a_batch_that_compaction_emptied_is_left_out():
    batch = one()
    batch[57:61] = bytes(4)
    assert not list(groups_of(walk(batch), FIT))


def test_a_record_beyond_the_limit_is_named_with_its_offset():
    batch = build_batch([Record(7, 1, b"k", b"v"), Record(8, 1, b"k", b"v" * 500)], base_offset=7)
    with pytest.raises(RecordTooLarge, match=r"offset 8 makes a batch of 57. bytes") as caught:
        list(repacked(batch, [0], Codec.NONE, 300))
    assert caught.value.offset == 8


@given(st.sets(st.integers(0, 40)))
def test_runs_are_offsets_in_short(offsets):
    runs = runs_of(sorted(offsets))
    assert [run.first + each for run in runs for each in range(run.records)] == sorted(offsets)
    assert all(one.first + one.records < two.first for one, two in pairwise(runs))
    assert runs_of([]) == () and runs_of([3]) == (Run(3, 1),)
