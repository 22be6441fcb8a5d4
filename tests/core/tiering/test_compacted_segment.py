"""Of each key the newest record stays, at its offset, whatever became of which segment."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.core.tiering.compacted_world import DAY_MS, Partition

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log.indexes import OffsetIndex
from anabranch.core.log.producer_snapshot import decode_snapshot
from anabranch.core.log.segment import LOG, OFFSETS, SNAPSHOT, offset_name
from anabranch.core.remote.compacted_mark import Mark, mark_of
from anabranch.core.remote.segment_check import check_file
from anabranch.core.tiering import compacted_segment
from anabranch.core.tiering.compacted_segment import Live, compacted, keys_of
from anabranch.core.wire.batch import read_header, walk
from anabranch.core.wire.compression import Codec


def tiered(*segments, **settings) -> Partition:
    """Segments of batches of pairs."""
    partition = Partition(**settings)
    for batches in segments:
        for pairs in batches:
            partition.put(*pairs)
        partition.tier()
    return partition


def test_the_newest_of_each_key_stays_where_it_is():
    partition = tiered(
        [[(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")]],
        [[(b"c", b"1"), (b"a", b"3")]],
        [[(b"b", b"2")]],
    )
    assert partition.compact(most_bytes=1) == [True, False, False]
    assert partition.records() == {3: (b"c", b"1"), 4: (b"a", b"3"), 5: (b"b", b"2")}
    assert [each.start_offset for each in partition.segments] == [0, 3, 5]
    assert [mark_of(each) for each in partition.segments] == [Mark(1, 6)] * 3


def test_neighbours_that_fit_become_one_segment():
    partition = tiered(*([[(b"k%d" % number, b"x" * 50)]] for number in range(9)))
    size = partition.segments[0].byte_size
    partition.compact(most_bytes=3 * size)
    assert [(each.start_offset, each.end_offset) for each in partition.segments] == [
        (0, 3), (3, 6), (6, 9),
    ]  # fmt: skip
    assert len(partition.records()) == 9
    assert mark_of(partition.segments[0]) == Mark(1, 9)
    partition.compact(most_bytes=1)
    assert mark_of(partition.segments[0]) == Mark(2, 9)


def test_a_pass_that_finds_nothing_changes_no_batch():
    partition = tiered([[(b"a", b"1")]], [[(b"b", b"1")]])
    assert partition.compact(most_bytes=1) == [False, False]


def test_a_tombstone_stays_until_its_horizon_and_until_what_it_deletes_is_gone():
    partition = tiered([[(b"k", b"1")]], [[(b"k", None)]], [[(b"end", b"x")]])
    partition.compact(most_bytes=1)
    assert partition.records() == {1: (b"k", None), 2: (b"end", b"x")}
    partition.now_ms += DAY_MS - 1
    partition.compact(most_bytes=1)
    assert 1 in partition.records()
    partition.now_ms += 1
    partition.compact(most_bytes=1)
    assert partition.records() == {2: (b"end", b"x")}


def test_a_tombstone_does_not_go_in_the_pass_that_removes_what_it_deletes_elsewhere():
    """A restored coordinator may have one group as it was, and another one as it is."""
    both = tiered([[(b"k", b"1")]], [[(b"k", None)]], [[(b"end", b"x")]])
    first, *_ = both.segments
    both.compact(most_bytes=1)
    both.now_ms += DAY_MS
    both.segments[0] = first
    both.compact(most_bytes=1)
    assert both.records() == {1: (b"k", None), 2: (b"end", b"x")}
    both.compact(most_bytes=1)
    assert both.records() == {2: (b"end", b"x")}


def test_no_tombstone_goes_while_something_waits_for_its_removal():
    partition = tiered([[(b"k", None)]], [[(b"end", b"x")]])
    partition.compact(most_bytes=1)
    partition.now_ms += DAY_MS
    gone = partition.segments[0]._replace(state=2, segment_id=partition.new_id())
    partition.segments.insert(0, gone)
    assert not partition.planned().forgets
    partition.compact(most_bytes=1)
    assert 0 in partition.records(partition.segments[1:])
    partition.segments.remove(gone)
    partition.compact(most_bytes=1)
    assert partition.records() == {1: (b"end", b"x")}


def test_a_group_without_any_record_is_still_a_segment():
    partition = tiered(*([[(b"k", b"%d" % number)]] for number in range(3)))
    partition.compact(most_bytes=1)
    assert [each.byte_size for each in partition.segments[:2]] == [61, 61]
    assert partition.records() == {2: (b"k", b"2")}


def test_producers_are_those_at_the_end_and_the_last_batch_of_each_is_kept():
    partition = Partition()
    for number in range(3):
        partition.put((b"k", b"%d" % number), producer_id=7)
    partition.put((b"k", b"end"))
    partition.tier()
    partition.compact()
    (segment,) = partition.segments
    (only,) = decode_snapshot(partition.file(segment, offset_name(4, SNAPSHOT)))
    assert (only.producer_id, only.last_sequence) == (7, 2)
    content = partition.file(segment, offset_name(0, LOG))
    assert [header.base_sequence for _, header in walk(content)] == [-1, 2, -1]


def test_indexes_are_those_of_what_is_left(monkeypatch):
    monkeypatch.setattr(compacted_segment, "INDEX_INTERVAL_BYTES", 100)
    partition = tiered([[(b"k%d" % number, bytes(60))] for number in range(40)])
    partition.put(*[(b"k%d" % number, b"new") for number in range(0, 40, 2)])
    partition.tier()
    partition.compact()
    (segment,) = partition.segments
    for name in partition.files[segment.segment_id]:
        if not name.endswith(LOG):
            check_file(segment, name, partition.file(segment, name))
    content = partition.file(segment, offset_name(0, LOG))
    assert max(header.max_timestamp for _, header in walk(content)) == segment.max_timestamp
    index = OffsetIndex.decode(partition.file(segment, offset_name(0, OFFSETS)), len(content))
    batches = dict(walk(content))
    assert len(index.offsets) > 5
    for last_offset, position in zip(index.offsets, index.positions, strict=True):
        assert batches[position].last_offset == last_offset


def test_damage_is_named_and_makes_no_segment():
    partition = tiered([[(b"k", b"1")]], [[(b"k", b"2")]])
    held = partition.files[partition.segments[0].segment_id]
    name = offset_name(0, LOG)
    held[name] = held[name][:-2] + b"\x7e" + held[name][-1:]
    with pytest.raises(CorruptLog, match="cannot be compacted"):
        partition.compact()


@pytest.mark.parametrize("seed", range(40))
def test_no_bit_of_a_batch_can_flip_unseen(seed):
    """Also of base offset and leader epoch, which no checksum covers: an older record at a later
    offset would take the place of a newer one."""
    random = Random(seed)
    partition = tiered(
        *(
            [[(b"k%d" % random.randint(0, 3), b"v")] for _ in range(random.randint(1, 4))]
            for _ in range(3)
        )
    )
    planned = partition.planned()
    group, files = partition.read(planned, planned.segments, DAY_MS)
    newest = set(keys_of(group, files).values())
    for position in (*range(16), random.randrange(16, len(files.logs[1]))):
        held = bytearray(files.logs[1])
        held[position] ^= 1 << random.randrange(8)
        damaged = files._replace(logs=[files.logs[0], held, files.logs[2]])
        with pytest.raises(StorageFault):
            keys_of(group, damaged)
        with pytest.raises(StorageFault):
            compacted(group, damaged, Live(newest, set()), partition.new_id())


def test_a_damaged_snapshot_makes_no_segment():
    partition = tiered([[(b"k", b"1")]])
    partition.files[partition.segments[0].segment_id][offset_name(1, SNAPSHOT)] = b"\0\1rot"
    with pytest.raises(StorageFault, match="snapshot"):
        partition.compact()


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
PAIRS = st.lists(
    st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=9))), min_size=1, max_size=4
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), PAIRS, st.sampled_from(list(Codec))),
        st.tuples(st.just("produce"), PAIRS, st.integers(5, 6)),
        st.tuples(st.just("begin"), KEYS, st.integers(0, 1)),
        st.tuples(st.just("end"), st.booleans(), st.integers(0, 1)),
        st.tuples(st.just("tier"), st.none(), st.none()),
        st.tuples(
            st.just("compact"),
            st.tuples(st.sampled_from([1, 300, 1 << 20]), st.sampled_from([0, 1000])),
            st.integers(0, 255),
        ),
        st.tuples(st.just("wait"), st.sampled_from([1, DAY_MS]), st.none()),
    ),
    max_size=40,
)
ABORTED_IN_THE_NEXT_SEGMENT = [
    ("put", [(b"a", b"committed")], Codec.NONE),
    ("begin", b"a", 1),
    ("tier", None, None),
    ("put", [(b"b", None)], Codec.NONE),
    ("end", False, 1),
    ("compact", (1, 0), 0),
]
ABORTED_AND_HALF_OF_THE_PASS = [*ABORTED_IN_THE_NEXT_SEGMENT[:-1], ("compact", (1, 0), 2)]
ABORTED_BEHIND_THE_PASS = [
    *ABORTED_IN_THE_NEXT_SEGMENT[:3],
    ("wait", DAY_MS, None),
    *ABORTED_IN_THE_NEXT_SEGMENT[3:-1],
    ("compact", (1, 1000), 0),
]


@settings(max_examples=120, deadline=None)
@given(STEPS)
@example(ABORTED_IN_THE_NEXT_SEGMENT)
@example(ABORTED_AND_HALF_OF_THE_PASS)
@example(ABORTED_BEHIND_THE_PASS)
def test_a_reader_sees_what_the_model_says(steps):
    """Any versions of keys in any segments, with transactions, codecs and passes between: each key
    has its newest committed value, and each record that is left is where it was, as it was. It is
    the same where a pass leaves young segments out, and where only some groups of a pass are
    there, as after a restore."""
    partition = Partition()
    written: dict[int, tuple[bytes, bytes | None]] = {}
    pending: dict[int, list[int]] = {}
    lost: set[int] = set()

    def settled() -> None:
        """What is tiered does not end within a transaction, though a segment may."""
        for each in [*pending]:
            partition.end(each, committed=True)
            del pending[each]

    def expected() -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for offset, (key, value) in sorted(written.items()):
            if offset not in lost and offset < partition.tiered_end:
                found.pop(key, None)
                if value is not None:
                    found[key] = value
        return found

    for what, first, second in steps:
        if what == "put":
            base = partition.put(*first, codec=second)
            written.update({base + at: pair for at, pair in enumerate(first)})
        elif what == "produce":
            base = partition.put(*first, producer_id=second)
            written.update({base + at: pair for at, pair in enumerate(first)})
        elif what == "begin":
            base = partition.put((first, b"t"), producer_id=second, transactional=True)
            written[base] = (first, b"t")
            pending.setdefault(second, []).append(base)
        elif what == "end" and second in pending:
            partition.end(second, committed=first)
            lost.update(() if first else pending[second])
            del pending[second]
        elif what == "tier":
            partition.tier()
        elif what == "wait":
            partition.now_ms += first
        elif what == "compact":
            settled()
            partition.tier()
            before = list(partition.segments)
            most_bytes, least_lag_ms = first
            made = partition.made(most_bytes, least_lag_ms=least_lag_ms)
            old_and_new = [
                (list(group.segments), built.segment._replace(state=1)) for group, built in made
            ]
            partition.swap(made)
            mixed = []
            for at, (old, new) in enumerate(old_and_new):
                mixed += [new] if second >> (at % 8) & 1 else old
            mixed += before[sum(len(old) for old, _ in old_and_new) :]
            assert partition.state(before) == expected()
            assert partition.state(mixed) == expected()
        records = partition.records()
        assert all(written[offset] == pair for offset, pair in records.items())
        if what == "compact":
            assert partition.state() == expected()
            keys = [key for key, _ in records.values()]
            assert first[1] or len(keys) == len(set(keys))


def test_a_batch_that_is_left_has_its_own_codec_and_producer():
    partition = Partition()
    partition.put((b"a", b"1" * 50), (b"b", b"1" * 50), codec=Codec.ZSTD, producer_id=5)
    partition.put((b"a", b"2"))
    partition.tier()
    partition.compact()
    content = partition.file(partition.segments[0], offset_name(0, LOG))
    header = read_header(content)
    assert (header.codec, header.producer_id, header.record_count) == (Codec.ZSTD, 5, 1)
