"""What a broker knows of where records lie: any reader gets on, whatever order things came in."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless.coordinates import MOST_RUNS_OF_ONE, Coordinates
from anabranch.core.diskless.rows import LogKey, Run
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(b"t" * 16), 0)
END = 5_000


def run(offset):
    return Run(KEY, offset, offset + 1, offset, f"o{offset}", 0, 100, 0)


RUNS = [run(offset) for offset in range(END)]


def asked(known, offset, max_bytes=1000):
    """The runs for a reader, after one question to the coordinator at most."""
    runs, _ = known.find(KEY, offset, max_bytes)
    if not runs:
        known.found(KEY, RUNS[offset : offset + 500], offset)
        runs, _ = known.find(KEY, offset, max_bytes)
    assert runs, "it would ask for ever"
    return runs


@given(
    committed=st.integers(0, END - 1),
    offsets=st.lists(st.integers(0, END - 1), max_size=20),
)
def test_one_question_is_enough_for_any_reader_anywhere(committed, offsets):
    known = Coordinates()
    known.appended(KEY, RUNS[committed:])
    for offset in offsets:
        runs = asked(known, offset)
        assert runs[0].base_offset == offset
        assert [each.base_offset for each in runs] == list(range(offset, offset + len(runs)))
        assert len(runs) <= 10
    assert len(known) <= 2 * MOST_RUNS_OF_ONE + 500


def test_readers_that_begin_ever_further_back_get_on():
    known = Coordinates()
    known.appended(KEY, RUNS[END - 1 :])
    for offset in range(END - 501, -1, -500):
        assert asked(known, offset)[0].base_offset == offset


@given(
    pieces=st.lists(st.tuples(st.integers(0, 100), st.integers(1, 10)), max_size=30),
    start=st.integers(0, 120),
)
def test_what_is_told_out_of_order_leaves_no_hole(pieces, start):
    known = Coordinates()
    for first, count in pieces:
        known.appended(KEY, RUNS[first : first + count])
    known.trim(KEY, start)
    for offset in range(120):
        runs, _ = known.find(KEY, offset, 10**9)
        if runs:
            assert runs[0].base_offset == offset >= start
            assert all(a.end_offset == b.base_offset for a, b in itertools.pairwise(runs))


def test_what_is_gone_or_missed_is_forgotten():
    known = Coordinates()
    known.appended(KEY, RUNS[:10])
    known.forget(KEY)
    assert known.find(KEY, 0, 1) == ([], False)
    known.appended(KEY, RUNS[:10])
    known.clear()
    assert known.find(KEY, 0, 1) == ([], False)
    assert len(known) == 0


@given(
    lost=st.sets(st.integers(0, 60), max_size=20),
    committed=st.integers(0, 80),
    offsets=st.lists(st.integers(0, 79), max_size=20),
    at_once=st.integers(1, 9),
)
def test_a_reader_passes_over_offsets_that_are_lost(lost, committed, offsets, at_once):
    """A restore may leave such holes: who comes to one is told what lies behind it."""
    there = [each for each in RUNS[:80] if each.base_offset not in lost]
    known = Coordinates()
    known.appended(KEY, [each for each in there if each.base_offset >= max(committed, 61)])
    for offset in offsets:
        behind = [each for each in there if each.end_offset > offset]
        runs, _ = known.find(KEY, offset, 1000)
        if not runs:
            known.found(KEY, behind[:at_once], offset)
            runs, _ = known.find(KEY, offset, 1000)
        assert runs == behind[: len(runs)] and runs, "it would ask for ever, or miss records"
