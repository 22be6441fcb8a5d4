"""The object format: what is encoded is found again, and no damage passes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless import layout
from anabranch.core.diskless.layout import DamagedObject, Header, Piece
from anabranch.core.diskless.rows import LogKey
from anabranch.core.types import TopicId

HEADER = Header("nYd9-cluster", 3, 77)

KEYS = st.builds(
    LogKey,
    st.sampled_from([TopicId(bytes([each]) * 16) for each in (9, 2, 250)]),
    st.integers(0, 5),
)
PIECES = st.lists(
    st.builds(
        Piece, KEYS, st.binary(min_size=1, max_size=40), st.integers(1, 9), st.integers(-1, 99)
    )
)


def whole(pieces, header=HEADER) -> bytes:
    return b"".join(layout.encode(header, pieces).buffers)


def read(held: bytes, place="store: object o"):
    tail = layout.decode_index(held, len(held), place)
    return layout.decode_header(held[: layout.HEADER_MOST], place), tail


@given(PIECES)
def test_each_batch_lies_where_the_encoder_says(pieces):
    encoded = layout.encode(HEADER, pieces)
    held = b"".join(encoded.buffers)
    assert len(held) == encoded.byte_size
    for piece, position in zip(pieces, encoded.positions, strict=True):
        assert held[position : position + len(piece.records)] == piece.records


@given(PIECES)
def test_batches_are_sorted_by_partition_and_keep_their_order_in_it(pieces):
    positions = layout.encode(HEADER, pieces).positions
    order = sorted(range(len(pieces)), key=lambda at: positions[at])
    assert order == sorted(range(len(pieces)), key=lambda at: (pieces[at].key, at))


@given(PIECES)
def test_the_index_says_what_each_partition_has(pieces):
    header, tail = read(whole(pieces))
    assert header == HEADER and tail.object_id == HEADER.object_id
    expected: dict[LogKey, list[Piece]] = {}
    for piece in pieces:
        expected.setdefault(piece.key, []).append(piece)
    assert {entry.key: entry for entry in tail.entries}.keys() == expected.keys()
    for entry in tail.entries:
        mine = expected[entry.key]
        assert entry.byte_size == sum(len(piece.records) for piece in mine)
        assert entry.batch_count == len(mine)
        assert entry.record_count == sum(piece.record_count for piece in mine)
        assert entry.max_timestamp == max(piece.max_timestamp for piece in mine)


@given(PIECES, st.data())
def test_the_tail_alone_gives_the_index(pieces, data):
    held = whole(pieces)
    size = layout.tail_size(held[-layout.FOOTER_SIZE :], len(held), "o")
    more = data.draw(st.integers(0, len(held) - size))
    tail = layout.decode_index(memoryview(held)[len(held) - size - more :], len(held), "o")
    assert tail == layout.decode_index(held, len(held), "o")


def test_no_batch_is_copied():
    batches = [bytearray(b"one"), memoryview(b"another"), b"third"]
    pieces = [Piece(LogKey(TopicId(bytes(16)), 0), batch, 1, 0) for batch in batches]
    buffers = layout.encode(HEADER, pieces).buffers
    assert [id(each) for each in buffers[1:-1]] == [id(each) for each in batches]


BATCHES = [
    Piece(LogKey(TopicId(bytes([topic]) * 16), partition), b"%d-%d" % (topic, partition), 1, 5)
    for topic in (1, 2)
    for partition in range(3)
]


@given(st.data())
def test_any_changed_byte_of_header_index_or_footer_is_noticed(data):
    held = bytearray(whole(BATCHES))
    _, tail = read(bytes(held))
    in_header = st.integers(0, tail.entries[0].byte_offset - 1)
    in_tail = st.integers(tail.index_offset, len(held) - 1)
    at = data.draw(in_header | in_tail)
    held[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedObject) as raised:
        read(bytes(held), "s3://b/p: object o-17")
    assert "s3://b/p: object o-17, byte " in str(raised.value)


@given(st.data())
def test_a_changed_byte_of_a_batch_changes_the_checksum_of_the_body(data):
    held = bytearray(whole(BATCHES))
    _, tail = read(bytes(held))
    layout.check_body(held, tail, "o")
    at = data.draw(st.integers(tail.entries[0].byte_offset, tail.index_offset - 1))
    held[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedObject, match="checksum"):
        layout.check_body(held, tail, "o")


@given(st.data())
def test_an_object_that_was_cut_is_noticed(data):
    held = whole(BATCHES)
    cut = held[: data.draw(st.integers(0, len(held) - 1))]
    with pytest.raises(DamagedObject):
        read(cut)


@given(st.binary(max_size=300))
def test_bytes_of_somebody_else_raise_nothing_but_damage(held):
    for call in (
        lambda: layout.decode_header(held, "o"),
        lambda: layout.decode_index(held, len(held), "o"),
    ):
        with pytest.raises(DamagedObject):
            call()


def test_a_format_that_is_not_known_is_said_so():
    held = bytearray(whole(BATCHES))
    held[8:10] = (9).to_bytes(2, "big")
    with pytest.raises(DamagedObject, match="format 9 is not known"):
        layout.decode_header(held, "o")
    held[-12:-10] = (9).to_bytes(2, "big")
    with pytest.raises(DamagedObject, match="format 9 is not known"):
        layout.decode_index(held, len(held), "o")


def test_an_object_without_batches_has_an_empty_index():
    assert read(whole([]))[1].entries == []


class Large(bytes):
    """Claims a size that nobody has memory for."""

    def __len__(self) -> int:
        return layout.MOST_BYTES


def test_an_object_that_positions_cannot_reach_is_refused():
    piece = Piece(LogKey(TopicId(bytes(16)), 0), Large(b"x"), 1, 0)
    with pytest.raises(ValueError, match="is the most"):
        layout.encode(HEADER, [piece])


def test_the_bytes_are_those_of_the_page():
    """The table in docs/concepts/diskless-objects.md, byte by byte: a change is a new format."""
    key = LogKey(TopicId(bytes(range(16))), 258)
    held = whole([Piece(key, b"batch!", 3, 1700)], Header("abc", 1, 2))
    assert held.hex() == (
        "414e42522d4f424a" "0002" "0021" "00000001" "0000000000000002" "0003" "616263" "ea114280"
        "626174636821"
        "000102030405060708090a0b0c0d0e0f" "00000102" "00000021" "00000006" "00000001" "00000003"
        "00000000000006a4"
        "2f697c47" "9d5cf09a" "00000001" "0000000000000002" "00000027" "00000054" "0002" "0000"
        "414e42522d4f424a"
    )  # fmt: skip
