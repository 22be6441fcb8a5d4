"""Large frames' memory: used again only when nobody looks at it."""

from __future__ import annotations

import os
from pathlib import Path

from anabranch.client.buffers import LARGEST_POOLED_BYTES, POOLED_BUFFERS, BufferPool


def test_memory_that_nobody_looks_at_is_used_again():
    pool = BufferPool()
    for size in (1_000_000, 900_000, 1_000_001):
        frame = pool.take(size)
        assert len(frame) == size
        del frame
    assert pool.made == 1


def test_memory_that_somebody_looks_at_is_left_alone():
    pool = BufferPool()
    kept = [pool.take(100_000)[5:10] for _ in range(3)]
    for number, view in enumerate(kept):
        view[:] = bytes([number]) * 5
    assert pool.made == 3
    assert [bytes(view) for view in kept] == [bytes([number]) * 5 for number in range(3)]


def test_the_pool_is_bounded():
    pool = BufferPool()
    kept = [pool.take(300_000) for _ in range(3 * POOLED_BUFFERS)]
    pool.take(LARGEST_POOLED_BYTES + 1)
    assert pool.kept_bytes <= POOLED_BUFFERS * 512 * 1024
    assert len(kept) == 3 * POOLED_BUFFERS


def test_larger_frames_take_the_place_of_smaller_ones():
    pool = BufferPool()
    small = [pool.take(100_000) for _ in range(POOLED_BUFFERS)]
    del small
    pool.take(1_000_000)
    made = pool.made
    pool.take(1_000_000)
    assert pool.made == made


def test_the_pool_is_bounded_in_bytes():
    pool = BufferPool(64, 4 << 20)
    kept = [pool.take(1 << 20) for _ in range(8)]
    assert pool.kept_bytes == 4 << 20
    assert len(kept) == 8


def test_several_smaller_frames_make_room_for_a_larger_one():
    pool = BufferPool(64, 4 << 20)
    used = pool.take(1 << 20)
    small = [pool.take(1 << 20) for _ in range(3)]
    del small
    pool.take(3 << 20)
    assert pool.kept_bytes == 4 << 20
    used[:4] = b"used"
    made = pool.made
    pool.take(3 << 20)
    assert pool.made == made
    assert bytes(used[:4]) == b"used"


def test_a_frame_that_was_only_announced_takes_no_memory():
    """Four bytes may announce socket.request.max.bytes: pages come with the bytes."""
    before = resident_bytes()
    frames = [BufferPool().take(100 << 20) for _ in range(4)]
    assert resident_bytes() - before < 8 << 20
    assert all(len(frame) == 100 << 20 and not frame.readonly for frame in frames)
    middling = [BufferPool().take(3 << 20) for _ in range(100)]
    assert resident_bytes() - before < 8 << 20
    assert len(middling) == 100
    frames[0][-3:] = b"end"
    assert bytes(frames[0][-4:]) == b"\0end"


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
