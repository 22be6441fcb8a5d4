"""R15: of each key the newest record stays, offsets and order stay, nothing else is lost."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.core.log.compacting import batches_of, compact, make
from tests.core.log.support import NOW_MS, append, marker, new_log, reopen, sync

from anabranch.core.errors import CorruptLog
from anabranch.core.log import cleanable
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.control import EndMarker, end_marker
from anabranch.core.wire.records import Record, build_batch, decode_records

DAY_MS = 86_400_000
COMPACTED = {"cleanup_policy": ("compact",), "segment_bytes": 400, "index_interval_bytes": 100}


def put_records(log, *pairs, now_ms=NOW_MS, **fields):
    """One batch of (key, value) pairs; its first offset."""
    records = [
        Record(index, now_ms + index, key, value) for index, (key, value) in enumerate(pairs)
    ]
    return append(log, build_batch(records, **fields), now_ms=now_ms)


def close_segment(log, now_ms=NOW_MS):
    """Everything so far may be compacted."""
    log.roll(now_ms)
    sync(log)


def records(log):
    """(offset, key, value) of every record, as a reader from the start gets them."""
    found = []
    for batch in batches_of(log):
        if not read_header(batch).is_control:
            found += [(each.offset, each.key, each.value) for each in decode_records(batch)]
    return found


def test_the_newest_of_each_key_stays_where_it_is():
    log = new_log(**COMPACTED)
    for number in range(20):
        put_records(log, (b"k%d" % (number % 3), b"%d" % number), (b"once%d" % number, b"x"))
    close_segment(log)
    upto = compact(log, NOW_MS)
    assert upto == 40
    kept = [(offset, key) for offset, key, _ in records(log) if not key.startswith(b"once")]
    assert kept == [(34, b"k2"), (36, b"k0"), (38, b"k1")]
    assert len(records(log)) == 23
    assert [offset for offset, _, _ in records(log)] == sorted(o for o, _, _ in records(log))


@pytest.mark.parametrize(("io_bytes", "size"), [(0, 20_000), (1 << 16, 40_000), (1 << 19, 270_000)])
def test_batches_larger_than_the_buffers_are_compacted(io_bytes, size):
    """log.cleaner.io.buffer.size is what is read at a time; two such batches in a row are whole."""
    log = new_log(cleanup_policy=("compact",))
    for number in range(6):
        put_records(log, (b"k%d" % (number % 2), b"%d" % number * size))
    close_segment(log)
    compact(log, NOW_MS, io_bytes=io_bytes)
    assert records(log) == [(4, b"k0", b"4" * size), (5, b"k1", b"5" * size)]


@pytest.mark.parametrize("map_bytes", [-1, 0, 1])
def test_every_pass_gets_on_however_small_the_key_map_is(map_bytes):
    """Else the next pass begins at once, and does the same: `log.cleaner.dedupe.buffer.size` and
    the load factor may be 0."""
    log = new_log(**COMPACTED)
    for number in range(4):
        put_records(log, (b"k", b"%d" % number))
    close_segment(log)
    upto = 0
    for _ in range(4):
        before, upto = upto, compact(log, NOW_MS, upto, map_bytes=map_bytes)
        assert upto > before
    assert records(log) == [(3, b"k", b"3")]


def test_the_active_segment_and_what_is_undecided_stay():
    log = new_log(**{**COMPACTED, "segment_bytes": 1 << 20})
    put_records(log, (b"k", b"1"))
    close_segment(log)
    put_records(log, (b"k", b"2"))
    found = cleanable.dirt(log, now_ms=NOW_MS, high_watermark=99, first_dirty_offset=0)
    assert found.upto == 1
    below = cleanable.dirt(log, now_ms=NOW_MS, high_watermark=0, first_dirty_offset=0)
    assert (below.upto, below.dirty_bytes) == (0, 0)


def test_a_log_is_compacted_when_enough_of_it_is_dirty():
    log = new_log(**COMPACTED)
    for number in range(10):
        put_records(log, (b"k%d" % number, b"v"))
    close_segment(log)
    found = cleanable.dirt(log, now_ms=NOW_MS, high_watermark=10, first_dirty_offset=0)
    assert (found.ratio, cleanable.is_worth_it(log, found)) == (1.0, True)
    upto = compact(log, NOW_MS)
    put_records(log, (b"k1", b"v"))
    close_segment(log)
    found = cleanable.dirt(log, now_ms=NOW_MS, high_watermark=11, first_dirty_offset=upto)
    assert 0 < found.ratio < 0.5
    assert not cleanable.is_worth_it(log, found)
    log.config = new_log(**COMPACTED, max_compaction_lag_ms=1_000).config
    late = cleanable.dirt(log, now_ms=NOW_MS + 1_001, high_watermark=11, first_dirty_offset=upto)
    assert cleanable.is_worth_it(log, late)


def test_young_records_wait_for_the_lag():
    log = new_log(**COMPACTED, min_compaction_lag_ms=1_000)
    put_records(log, (b"k", b"1"))
    close_segment(log)
    for now_ms, upto in ((NOW_MS + 999, 0), (NOW_MS + 1_001, 1)):
        found = cleanable.dirt(log, now_ms=now_ms, high_watermark=1, first_dirty_offset=0)
        assert found.upto == upto


def test_a_tombstone_stays_until_its_horizon():
    log = new_log(**COMPACTED)
    put_records(log, (b"k", b"1"), (b"other", b"1"))
    put_records(log, (b"k", None))
    close_segment(log)
    compact(log, NOW_MS)
    assert records(log) == [(1, b"other", b"1"), (2, b"k", None)]
    (header,) = [read_header(each) for each in batches_of(log)[1:]]
    assert header.has_delete_horizon and header.base_timestamp == NOW_MS + DAY_MS
    assert decode_records(batches_of(log)[1])[0].timestamp == NOW_MS
    compact(log, NOW_MS + DAY_MS - 1)
    assert len(records(log)) == 2
    compact(log, NOW_MS + DAY_MS)
    assert records(log) == [(1, b"other", b"1")]


@pytest.mark.parametrize("for_ever_ms", [2**62, 2**63 - 1])
def test_tombstones_and_markers_that_are_kept_for_ever_stay_readable(for_ever_ms: int):
    """`delete.retention.ms` may be any long: now and that together may be none."""
    log = new_log(**{**COMPACTED, "delete_retention_ms": for_ever_ms})
    put_records(log, (b"gone", None), now_ms=-1)
    put_records(log, (b"gone", None))
    log.append_as_leader(marker(7, committed=True), leader_epoch=0, now_ms=NOW_MS, client=False)
    put_records(log, (b"end", b""))
    close_segment(log)
    for now_ms in (NOW_MS, NOW_MS + 1000 * DAY_MS):
        compact(log, now_ms)
        assert records(log) == [(1, b"gone", None), (3, b"end", b"")]
        assert log.offset_for_timestamp(NOW_MS, upto=4) == (NOW_MS, 1, 0)
        (control,) = [each for each in batches_of(log) if read_header(each).is_control]
        assert end_marker(control) == EndMarker(committed=True, coordinator_epoch=0)


def test_records_of_an_aborted_transaction_go_and_then_its_marker():
    log = new_log(**COMPACTED)
    mine = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    put_records(log, (b"k", b"stays"))
    put_records(log, (b"k", b"aborted"), base_sequence=0, **mine)
    log.append_as_leader(marker(7, committed=False), leader_epoch=0, now_ms=NOW_MS, client=False)
    put_records(log, (b"k2", b"committed"), base_sequence=1, **mine)
    log.append_as_leader(marker(7, committed=True), leader_epoch=0, now_ms=NOW_MS, client=False)
    put_records(log, (b"end", b""))
    close_segment(log)
    compact(log, NOW_MS)
    assert records(log) == [(0, b"k", b"stays"), (3, b"k2", b"committed"), (5, b"end", b"")]
    assert log.aborted_transactions(0, 6) != []
    controls = lambda: [  # noqa: E731
        read_header(each).base_offset for each in batches_of(log) if read_header(each).is_control
    ]
    assert controls() == [2, 4]
    compact(log, NOW_MS)
    assert controls() == [2, 4], "nothing is left of it: from now on its horizon counts"
    compact(log, NOW_MS + DAY_MS)
    assert controls() == [4]
    assert log.aborted_transactions(0, 6) == []


def test_a_producers_last_sequence_is_remembered():
    log = new_log(**COMPACTED)
    put_records(log, (b"k", b"1"), producer_id=9, producer_epoch=0, base_sequence=0)
    put_records(log, (b"k", b"2"))
    close_segment(log)
    compact(log, NOW_MS)
    assert records(log) == [(1, b"k", b"2")]
    for name in log.files.list(log.folder):
        if name.endswith(".snapshot"):
            log.files.remove(f"{log.folder}/{name}")
    again = reopen(log, recovery_point=0)
    assert again.producers.producers[9].last_sequence == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_written_again_in_itself(codec):
    log = new_log(**COMPACTED)
    put_records(log, (b"a", b"1" * 50), (b"b", b"1" * 50), (b"c", None), codec=codec)
    put_records(log, (b"a", b"2" * 50), codec=codec)
    close_segment(log)
    compact(log, NOW_MS)
    assert records(log) == [(1, b"b", b"1" * 50), (2, b"c", None), (3, b"a", b"2" * 50)]
    assert {read_header(each).codec for each in batches_of(log)} == {codec}


def test_small_neighbours_become_one_segment():
    log = new_log(**{**COMPACTED, "segment_bytes": 1_000})
    for number in range(12):
        put_records(log, (b"same", b"%d" % number * 20), (b"k%d" % number, b"x"))
        if number % 2:
            close_segment(log)
    before = len(log.segments)
    compact(log, NOW_MS)
    compact(log, NOW_MS)
    assert len(log.segments) < before
    assert len(records(log)) == 13
    again = reopen(log)
    assert records(again) == records(log)
    assert again.size_bytes == log.size_bytes


def test_what_does_not_fit_into_the_map_is_left_for_the_next_pass():
    log = new_log(**COMPACTED)
    for number in range(60):
        put_records(log, (b"k%d" % (number % 20), b"%d" % number))
    close_segment(log)
    upto, passes = 0, 0
    while upto < 60:
        upto = compact(log, NOW_MS, upto, map_bytes=1_500)
        passes += 1
    assert passes > 1
    assert [key for _, key, _ in records(log)] == [b"k%d" % number for number in range(20)]


def test_records_without_a_key_go():
    log = new_log(**COMPACTED)
    batch = build_batch([Record(0, NOW_MS, None, b"x"), Record(1, NOW_MS, b"k", b"x")])
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, client=False)
    close_segment(log)
    compact(log, NOW_MS)
    assert records(log) == [(1, b"k", b"x")]


def test_damage_is_named_and_changes_nothing():
    log = new_log(**COMPACTED)
    put_records(log, (b"k", b"1"))
    put_records(log, (b"k", b"2"))
    close_segment(log)
    log.files.contents[f"{log.folder}/{0:020d}.log"][61] ^= 0x7E
    names = log.files.list(log.folder)
    with pytest.raises(CorruptLog, match=r"cannot be compacted.*offset 0"):
        make(log, NOW_MS)
    assert [each for each in log.files.list(log.folder) if not each.endswith(".cleaned")] == names


KEYS = [b"a", b"b", b"c", b"d"]
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.lists(
                st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=9))),
                min_size=1, max_size=4,
            ),
            st.sampled_from(list(Codec)),
        ),
        st.tuples(st.just("begin"), st.sampled_from(KEYS), st.integers(0, 1)),
        st.tuples(st.just("end"), st.booleans(), st.integers(0, 1)),
        st.tuples(st.just("roll"), st.none(), st.none()),
        st.tuples(st.just("compact"), st.integers(0, 2), st.sampled_from([300, 1 << 20])),
        st.tuples(st.just("wait"), st.sampled_from([1, DAY_MS]), st.none()),
        st.tuples(st.just("reopen"), st.booleans(), st.none()),
    ),
    max_size=40,
)  # fmt: skip


ABORTED_IN_THE_NEXT_SEGMENT = [
    ("put", [(b"a", b"committed")], Codec.NONE),
    ("begin", b"a", 1),
    ("roll", None, None),
    ("put", [(b"b", None)], Codec.NONE),
    ("end", False, 1),
    ("compact", 0, 1 << 20),
]


FIRST_OF_AN_EPOCH_IN_A_TRANSACTION = [
    ("begin", b"a", 1),
    ("end", True, 1),
    ("begin", b"a", 1),
    ("end", True, 1),
    ("roll", None, None),
    ("compact", 0, 1 << 20),
]


MARKER_BEHIND_THE_END_OF_A_PASS = [
    ("put", [(b"a", b"1")], Codec.NONE),
    ("put", [(b"b", b"1")], Codec.NONE),
    ("begin", b"c", 1),
    ("end", True, 1),
    ("begin", b"c", 1),
    ("end", True, 1),
    ("roll", None, None),
    ("compact", 0, 1 << 20),
    ("compact", 0, 1 << 20),
    ("wait", DAY_MS, None),
    ("compact", 0, 300),
]


@settings(max_examples=150, deadline=None)
@given(STEPS)
@example(ABORTED_IN_THE_NEXT_SEGMENT)
@example(MARKER_BEHIND_THE_END_OF_A_PASS)
@example(FIRST_OF_AN_EPOCH_IN_A_TRANSACTION)
def test_a_reader_sees_what_the_model_says(steps):
    """The newest record of each key is there; nothing is invented, moved or put out of order."""
    log = new_log(**COMPACTED)
    now_ms, upto = NOW_MS, 0
    written: dict[int, tuple[bytes, bytes | None]] = {}
    open_of: dict[int, list[int]] = {}
    sequences, epochs = {0: 0, 1: 0}, {0: 0, 1: 0}
    aborted: set[int] = set()
    horizon: dict[int, int] = {}
    for what, first, second in steps:
        if what == "put":
            base = put_records(log, *first, now_ms=now_ms, codec=second)
            written.update({base + index: pair for index, pair in enumerate(first)})
        elif what == "begin":
            base = put_records(
                log, (first, b"t"), now_ms=now_ms, producer_id=second,
                producer_epoch=epochs[second], base_sequence=sequences[second], transactional=True,
            )  # fmt: skip
            sequences[second] += 1
            written[base] = (first, b"t")
            open_of.setdefault(second, []).append(base)
        elif what == "end" and second in open_of:
            log.append_as_leader(
                marker(second, committed=first, producer_epoch=epochs[second]),
                leader_epoch=0, now_ms=now_ms, client=False,
            )  # fmt: skip
            if second:  # as in KIP-890, each transaction has an epoch of its own
                epochs[second], sequences[second] = epochs[second] + 1, 0
            offsets = open_of.pop(second)
            aborted.update(() if first else offsets)
        elif what == "roll" and log.active is not None and log.active.size:
            close_segment(log, now_ms)
        elif what == "compact":
            held = batches_of(log)
            upto = compact(log, now_ms, upto if first else 0, map_bytes=second)
            assert from_offset(batches_of(log), upto) == from_offset(held, upto)
        elif what == "wait":
            now_ms += first
        elif what == "reopen":
            sync(log)
            log = reopen(log, clean=first, now_ms=now_ms)
    check(log, written, aborted, now_ms)
    again = reopen(log, now_ms=now_ms, recovery_point=0, clean_point=log.end_offset)
    check(again, written, aborted, now_ms)
    assert horizon == {}


def from_offset(batches, offset):
    """Those that begin at an offset or behind it."""
    return [each for each in batches if read_header(each).base_offset >= offset]


def check(log, written, aborted, now_ms):
    """Against the model: written offset -> (key, value), those of aborted transactions apart."""
    headers = map(read_header, batches_of(log))
    of_no_producer = [each for each in headers if each.producer_id < 0]
    assert not any(each.is_transactional or each.is_control for each in of_no_producer)
    seen = records(log)
    assert all(written[offset] == (key, value) for offset, key, value in seen)
    offsets = [offset for offset, _, _ in seen]
    assert offsets == sorted(set(offsets))
    newest = {key: offset for offset, (key, _) in sorted(written.items()) if offset not in aborted}
    for key, offset in newest.items():
        if written[offset][1] is not None or now_ms < NOW_MS + DAY_MS:
            assert offset in offsets, (key, offset)
    # A key whose newest record is a tombstone shows nothing older than the tombstone's removal.
    ranges = log.aborted_transactions(0, log.end_offset + 1)
    for offset in set(offsets) & aborted:
        assert any(first <= offset for _, first in ranges), "readers must be told to skip it"
    committed = [(offset, key) for offset, key, _ in seen if offset not in aborted]
    last = {key: offset for offset, key in committed}
    for key, offset in last.items():
        if offset != newest[key]:
            # only a tombstone that is over may be missing above an older record: never below it
            assert written[newest[key]][1] is None
            raise AssertionError(f"{key!r} shows {offset}, deleted at {newest[key]}")


def test_a_tombstone_beyond_the_end_of_a_pass_is_left_as_it_is():
    """The map has not seen it: with a horizon it might go before the record that it deletes."""
    log = new_log(**{**COMPACTED, "segment_bytes": 1 << 20})
    put_records(log, (b"k", b"1"))
    for number in range(20):
        put_records(log, (b"other%d" % number, b"x"))
    put_records(log, (b"k", None))
    close_segment(log)
    upto = compact(log, NOW_MS, map_bytes=1_000)
    assert 0 < upto < 21
    assert not read_header(batches_of(log)[-1]).has_delete_horizon
    compact(log, NOW_MS, upto)
    assert records(log)[-1] == (21, b"k", None)
    assert (0, b"k", b"1") not in records(log)


def test_a_marker_beyond_the_end_of_a_pass_is_left_as_it_is():
    """Only what lies below that end is checkpointed: a log that lacks more at the end of a segment
    would look like one that a power cut took a piece of, and be cut there."""
    log = new_log(**{**COMPACTED, "segment_bytes": 1 << 20})
    for number in range(20):
        put_records(log, (b"k%d" % number, b"x"))
    # Nothing else is left of the first transaction, as in a copy of a compacted log.
    for epoch in (0, 1):
        end = marker(7, committed=True, producer_epoch=epoch)
        log.append_as_leader(end, leader_epoch=0, now_ms=NOW_MS, client=False)
        close_segment(log)
    for now_ms in (NOW_MS, NOW_MS + DAY_MS):
        upto = compact(log, now_ms, map_bytes=1_000)
        assert 0 < upto < 20
    again = reopen(log, recovery_point=0, clean_point=upto)
    assert again.end_offset == log.end_offset == 22


def test_a_transaction_aborted_before_the_dirty_part_hides_no_key_of_it():
    log = new_log(**COMPACTED)
    mine = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    put_records(log, (b"a", b"aborted"), base_sequence=0, **mine)
    log.append_as_leader(marker(7, committed=False), leader_epoch=0, now_ms=NOW_MS, client=False)
    put_records(log, (b"k", b"old"))
    close_segment(log)
    upto = compact(log, NOW_MS)
    put_records(log, (b"k", b"new"), base_sequence=1, **mine)
    log.append_as_leader(marker(7, committed=True), leader_epoch=0, now_ms=NOW_MS, client=False)
    close_segment(log)
    compact(log, NOW_MS, upto)
    assert records(log) == [(3, b"k", b"new")]


def test_what_has_rotted_gets_no_sound_checksum():
    log = new_log(**COMPACTED)
    put_records(log, (b"k", b"1"), (b"other", b"a value"))
    put_records(log, (b"k", b"2"))
    close_segment(log)
    held = log.files.contents[f"{log.folder}/{0:020d}.log"]
    held[held.index(b"a value")] ^= 1
    with pytest.raises(CorruptLog, match="checksum"):
        compact(log, NOW_MS)


@pytest.mark.parametrize("seed", range(30))
def test_the_newest_record_by_time_is_found_though_newer_ones_are_gone(seed):
    """Batches that stay without records keep their timestamps."""
    random = Random(seed)
    log = new_log(**COMPACTED)
    now_ms = NOW_MS
    for _ in range(12):
        pairs = [(b"k%d" % random.randrange(3), random.choice([b"v", None]))]
        put_records(log, *pairs, now_ms=NOW_MS + random.randrange(50))
        if random.random() < 0.3:
            close_segment(log)
        if random.random() < 0.2:
            now_ms += random.choice([1, DAY_MS])
            compact(log, now_ms)
    close_segment(log)
    compact(log, now_ms + DAY_MS)
    left = [
        (record.timestamp, -record.offset)
        for each in batches_of(log)
        for record in decode_records(each)
    ]
    found = log.max_timestamp_offset(upto=log.end_offset)
    assert left == [] if found is None else (found.timestamp, -found.offset) == max(left)
