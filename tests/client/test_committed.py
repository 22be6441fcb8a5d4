"""Readers of committed records see each batch whose transaction was committed, and no other."""

from __future__ import annotations

from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.client.committed import Committed
from anabranch.core.wire.batch import walk
from anabranch.core.wire.control import build_end_marker, build_leader_change
from anabranch.core.wire.records import Record, build_batch

PRODUCERS = (7, 8, 9)
conduct = st.lists(
    st.tuples(st.sampled_from(["write", "plain", "commit", "abort"]), st.sampled_from(PRODUCERS)),
    max_size=25,
)


def log_of(done):
    """(batches, offsets of what a reader may see, aborted transactions) of some producers' steps."""
    log, seen, aborted, unsettled = bytearray(), set(), [], {}
    steps = [*done, *(("commit", each) for each in PRODUCERS)]
    for offset, (step, producer) in enumerate(steps):
        if step in ("write", "plain"):
            log += build_batch(
                [Record(offset, 0, b"k", b"v")], base_offset=offset, producer_id=producer,
                producer_epoch=0, base_sequence=0, transactional=step == "write",
            )  # fmt: skip
            if step == "plain":
                seen.add(offset)
            else:
                unsettled.setdefault(producer, []).append(offset)
        else:
            log += build_end_marker(
                committed=step == "commit", base_offset=offset, producer_id=producer,
                producer_epoch=0, coordinator_epoch=0, now_ms=0,
            )  # fmt: skip
            written = unsettled.pop(producer, [])
            if step == "commit":
                seen.update(written)
            elif written:
                aborted.append((producer, written[0]))
    return bytes(log), seen, aborted


ABORTED_THEN_COMMITTED = [("write", 7), ("abort", 7), ("write", 7)]


@given(conduct, st.randoms())
@example(ABORTED_THEN_COMMITTED, Random(1))
def test_what_was_committed_is_seen_and_nothing_else(done, random):
    log, seen, aborted = log_of(done)
    random.shuffle(aborted)
    committed = Committed(aborted)
    shown = {
        header.base_offset
        for position, header in walk(log)
        if committed.shows(header, log, position)
    }
    assert shown == seen


def test_control_batches_of_any_kind_are_not_shown():
    batch = build_leader_change(base_offset=0, leader_epoch=1, leader_id=1, now_ms=0)
    ((position, header),) = walk(batch)
    assert not Committed(()).shows(header, batch, position)
