"""A torn index file is told from a whole one, whatever its bytes are."""

from __future__ import annotations

import pytest

from anabranch.core.log.indexes import InvalidIndex, OffsetIndex, TimeIndex

SEGMENT_BYTES = 1_000_000


def offset_index() -> bytes:
    index = OffsetIndex()
    index.append(3, 256)
    return index.encode()


def time_index() -> bytes:
    index = TimeIndex()
    index.append_if_later(1_700_000_000_000, 3)
    return index.encode()


@pytest.mark.parametrize("size", range(1, 8))
def test_a_torn_offset_index_is_refused(size: int) -> None:
    with pytest.raises(InvalidIndex):
        OffsetIndex.decode(offset_index()[:size], SEGMENT_BYTES)


@pytest.mark.parametrize("size", range(1, 12))
def test_a_torn_time_index_is_refused(size: int) -> None:
    with pytest.raises(InvalidIndex):
        TimeIndex.decode(time_index()[:size])


def test_whole_entries_of_zeros_at_the_end_are_a_preallocated_file() -> None:
    assert len(OffsetIndex.decode(offset_index() + bytes(80), SEGMENT_BYTES)) == 1
    assert len(TimeIndex.decode(time_index() + bytes(120))) == 1
