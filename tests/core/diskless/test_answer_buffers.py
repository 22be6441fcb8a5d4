"""What a reader gets of runs is what the batches say, and large ones are not copied for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.core.diskless.diskless_node import batch

from anabranch.core.diskless.answer_buffers import JOINED_BYTES, AnswerBuffers, answer_of
from anabranch.core.diskless.assembly import Damaged
from anabranch.core.diskless.rows import LogKey, Run
from anabranch.core.types import TopicId
from anabranch.core.wire.batch import patch, walk
from anabranch.core.wire.records import decode_records

KEY = LogKey(TopicId(b"t" * 16), 0)
SMALL = bytes(batch(b"a", b"b"))
LARGE = bytes(batch(b"x" * JOINED_BYTES))
BATCHES = {SMALL: 2, LARGE: 1}
"""Batches, and how many records each has."""


def run_of(batches, base_offset):
    """A run of these batches from an offset on, and its bytes."""
    held = b"".join(batches)
    end_offset = base_offset + sum(BATCHES[each] for each in batches)
    return Run(KEY, base_offset, end_offset, 1, "o", 0, len(held), 0), held


def expected(runs, held, offset, upto, max_bytes, at_least_one):
    """By copying each batch, and looking at it alone."""
    taken, size = [], 0
    for run, whole in zip(runs, held, strict=True):
        at = run.base_offset
        for position, header in walk(whole):
            last = at + header.last_offset_delta
            placed = bytearray(whole[position : position + header.size_bytes])
            patch(placed, 0, at, 0)
            at = last + 1
            if last < offset:
                continue
            if last >= upto or (size + len(placed) > max_bytes and (taken or not at_least_one)):
                return b"".join(taken)
            taken.append(placed)
            size += len(placed)
    return b"".join(taken)


@given(
    given_runs=st.lists(st.lists(st.sampled_from([SMALL, LARGE]), min_size=1, max_size=5),
                        max_size=4),
    offset=st.integers(0, 40), upto=st.integers(0, 40), data=st.data(),
    max_bytes=st.integers(0, 12 * JOINED_BYTES), at_least_one=st.booleans(),
)  # fmt: skip
def test_a_reader_gets_the_batches_that_it_may_have(
    given_runs, offset, upto, max_bytes, at_least_one, data
):
    runs, held, pieces, end = [], [], [], 0
    for batches in given_runs:
        run, whole = run_of(batches, end)
        cut = data.draw(st.integers(0, len(whole)))
        runs.append(run)
        held.append(whole)
        pieces.append([memoryview(each) for each in (whole[:cut], whole[cut:]) if each])
        end = run.end_offset
    answer = AnswerBuffers(offset, upto, max_bytes, at_least_one=at_least_one)
    assert answer_of(runs, pieces, answer) is None
    wanted = expected(runs, held, offset, upto, max_bytes, at_least_one)
    assert b"".join(answer.take()) == wanted
    for position, _ in walk(wanted):
        assert decode_records(wanted, position)


def test_large_batches_are_not_copied_and_the_cache_is_not_written_to():
    run, whole = run_of([LARGE, SMALL, SMALL, LARGE], 5)
    held = bytearray(whole)
    answer = AnswerBuffers(0, 100, 1 << 20, at_least_one=True)
    assert answer_of([run], [[memoryview(held)]], answer) is None
    buffers = answer.take()
    assert held == whole
    of_the_cache = [each for each in buffers if isinstance(each, memoryview) and each.obj is held]
    copied = sum(map(len, buffers)) - sum(map(len, of_the_cache))
    assert len(of_the_cache) == 2
    assert copied == 2 * 16 + 2 * len(SMALL)
    assert len(buffers) == 4, "what is copied is joined"


def test_nothing_of_a_damaged_run_is_told():
    (first, sound), (second, held) = run_of([SMALL], 0), run_of([SMALL, LARGE], 2)
    damaged = bytearray(held)
    damaged[-1] ^= 1
    answer = AnswerBuffers(0, 100, 1 << 20, at_least_one=True)
    assert isinstance(answer_of([first, second], [[sound], [damaged]], answer), Damaged)
    assert b"".join(answer.take()) == expected([first], [sound], 0, 100, 1 << 20, True)
