"""What a seal holds, and what becomes of it: against what a plain look at each offset says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless.commit import Producer, Written
from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.errors import StorageFault
from anabranch.core.log.producers import Producer as LogProducer
from anabranch.core.log.producers import ProducerBatch, ProducerStates
from anabranch.core.remote.lineage import Lineage
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.tiering.seals import (
    Seal,
    SealedEnd,
    carried,
    check_kept,
    state_after,
    to_keep,
)
from anabranch.core.tiering.tiered_tail import lineage_of
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(bytes(16)), 0)
END = 12


@st.composite
def logs(draw):
    """The epoch of each offset of a log, none going back."""
    return sorted(draw(st.lists(st.integers(0, 3), min_size=END, max_size=END)))


@st.composite
def segments_of(draw):
    """Segments, each with an epoch for each of its offsets, as some leader had them."""
    made = []
    for number in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, END - 1))
        end = draw(st.integers(start + 1, END))
        epochs = sorted(draw(st.lists(st.integers(0, 3), min_size=end - start,
                                      max_size=end - start)))  # fmt: skip
        starts = [
            EpochStart(epoch, start + at)
            for at, epoch in enumerate(epochs)
            if at == 0 or epochs[at - 1] != epoch
        ]
        state = draw(st.sampled_from(list(SegmentState)[:3]))
        segment = RemoteSegment(
            SegmentId(bytes([number]) * 16), KEY, start, end, 1, tuple(starts), 10, 1, 3,
            state=state,
        )  # fmt: skip
        made.append((segment, epochs))
    return made


def lineage(log):
    starts = [
        EpochStart(epoch, at) for at, epoch in enumerate(log) if at == 0 or log[at - 1] != epoch
    ]
    return Lineage(tuple(starts), 3)


@given(logs(), segments_of(), st.integers(0, END))
def test_segments_are_kept_that_the_log_has_wholly_and_a_seal_needs_all_offsets(
    log, made, log_start
):
    segments = [segment for segment, _ in made]
    kept = to_keep(segments, lineage(log), log_start)
    wanted, held = [], set()
    for segment, epochs in made:
        offsets = range(max(segment.start_offset, log_start), segment.end_offset)
        agrees = all(log[at] == epochs[at - segment.start_offset] for at in offsets)
        if segment.is_finished and offsets and agrees:
            wanted.append(segment.segment_id)
            held.update(offsets)
    assert list(kept) == wanted
    seal = Seal(KEY, "t", 1, 3, log_start, END, kept, ())
    finished = [each for each in segments if each.is_finished]
    if held >= set(range(log_start, END)):
        check_kept(seal, finished)
        state = state_after(
            SealedEnd(3, log_start, END, -1), 0, [s for s in finished if s.segment_id in kept]
        )
        assert (state.start_offset, state.high_watermark) == (log_start, END)
        assert (state.tiered_end, state.leader_epoch) == (END, 3)
        found = lineage_of(s for s in finished if s.segment_id in kept)
        for at in sorted(held):
            spans = [found.span_of(log[at])]
            assert spans[0] is not None
            assert spans[0].first <= at < spans[0].end
    else:
        with pytest.raises(StorageFault, match="do not hold all offsets"):
            check_kept(seal, finished)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_a_partition_begins_where_it_was_last_known_to(sealed_start, later_start, end):
    sealed = SealedEnd(4, min(sealed_start, end), end, 7)
    state = state_after(sealed, later_start, [])
    assert state == LogState(min(max(later_start, sealed_start), end), end, 0, end, 4)


def test_producers_are_carried_with_their_last_batches_and_epochs():
    states = ProducerStates()
    several = LogProducer(5, 2)
    several.batches = [ProducerBatch(9 + at * 10, 9 + at * 10, 9, 0) for at in range(6)]
    wrapped = LogProducer(3, 0)
    wrapped.batches = [ProducerBatch(1, 103, 3, 0)]
    states.producers = {5: several, 3: wrapped, 4: LogProducer(4, 9)}
    assert carried(states) == (
        (3, Producer(0, (Written(2**31 - 2, 1, 100),))),
        (4, Producer(9)),
        (5, Producer(2, tuple(Written(at * 10, at * 10 + 9, at * 10) for at in range(1, 6)))),
    )
