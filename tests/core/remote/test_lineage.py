"""Which offsets of a remote segment are those of the log."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.core.remote.remote_kit import epochs, lineage, remote

from anabranch.core.remote.lineage import Lineage, Span, agreed_spans, is_cut, joined
from anabranch.core.remote.segments import EpochStart

SIZE = 12


def test_a_segment_of_the_logs_epochs_counts_as_a_whole():
    segment = remote(10, 50, (0, 10), (2, 30))
    assert agreed_spans(segment, lineage((0, 0), (2, 30), (3, 90))) == [Span(10, 50)]


def test_what_an_unclean_election_cut_off_does_not_count():
    segment = remote(10, 50, (0, 10), (2, 30))
    assert agreed_spans(segment, lineage((0, 0), (3, 20))) == [Span(10, 20)]
    assert agreed_spans(segment, lineage((0, 0), (2, 30), (3, 40))) == [Span(10, 40)]
    assert not is_cut(segment, lineage((0, 0), (3, 20)), 0)
    assert is_cut(segment, lineage((0, 0), (3, 20)), 20)
    assert is_cut(segment, lineage((0, 0), (3, 5)), 0)


def test_what_a_leader_cannot_judge_is_not_cut():
    newer = remote(10, 50, (4, 10))
    assert not is_cut(newer, lineage((0, 0), (3, 5)), 0)
    copied_by_newer = remote(10, 50, (1, 10), leader_epoch=4)
    assert not is_cut(copied_by_newer, lineage((0, 0), (3, 5)), 0)
    assert not is_cut(remote(10, 50, (1, 10)), lineage((2, 30)), 0)
    assert not is_cut(remote(10, 50, (1, 10)), Lineage((), 9), 0)


@st.composite
def logs(draw: st.DrawFn) -> list[int]:
    """The epoch of each offset."""
    return sorted(draw(st.lists(st.integers(0, 4), min_size=1, max_size=SIZE)))


def table(of: list[int], first: int = 0) -> tuple[EpochStart, ...]:
    begun = [at for at in range(first, len(of)) if at == first or of[at] != of[at - 1]]
    return epochs(*((of[at], at) for at in begun))


@given(logs(), logs(), st.integers(0, SIZE), st.integers(0, SIZE), st.integers(0, SIZE))
def test_offsets_are_compared_one_by_one(copied, held, first, start, log_start):
    """The table of the log may begin late; the leader, of a newer epoch, has written nothing."""
    first, start = min(first, len(held) - 1), min(start, len(copied) - 1)
    segment = remote(start, len(copied), *table(copied, start))
    of = Lineage((*table(held, first), EpochStart(9, len(held))), 9)
    same = {
        at for at in range(start, len(copied)) if first <= at < len(held) and copied[at] == held[at]
    }
    assert {at for each in agreed_spans(segment, of) for at in range(*each)} == same
    left = range(max(start, log_start), len(copied))
    assert is_cut(segment, of, log_start) == (
        bool(left) and left[0] >= first and not same.intersection(left)
    )


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), max_size=6))
def test_spans_are_joined(drawn):
    spans = [Span(first, first + size) for first, size in drawn]
    found = joined(spans)
    offsets = {at for each in spans for at in range(*each)}
    assert [at for each in found for at in range(*each)] == sorted(offsets)
    assert all(one.end < other.first for one, other in pairwise(found))
