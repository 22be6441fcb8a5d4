"""In whatever order a producer's batches arrive, none gets past an earlier one that was refused.

The invariant, for a producer and each of its epochs: while a batch that was refused for a cause that
passes is not in the log, and its epoch is not fenced, no batch of a higher sequence number of that
epoch is taken, whatever batches of other epochs come in between.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st
from tests.core.api.test_sequence_gaps import full_disk, send
from tests.core.replication.peers import Peers

from anabranch.core.errors import ErrorCode
from anabranch.core.log.sequence_gaps import PASSING
from anabranch.core.wire.batch import walk

EPOCHS = 3
BATCHES = 4
NONE = ErrorCode.NONE

ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, EPOCHS - 1), st.integers(0, BATCHES - 1), st.sampled_from([False, True])
    ),
    max_size=14,
)
"""(epoch, sequence number, whether the disk is full just then); each may come again."""


def taken(peers) -> list[tuple[int, int]]:
    """(epoch, sequence number) of each batch in the log."""
    found = memoryview(peers[1].bytes_upto(peers[1].end))
    return [(header.producer_epoch, header.base_sequence) for _, header in walk(found)]


@given(ARRIVALS)
@example([(1, 0, True), (0, 2, True), (1, 1, False)])
@example([(0, 3, True), (1, 0, True), (0, 3, True), (0, 4, False)])
def test_no_batch_is_taken_before_an_earlier_one_that_was_refused(arrivals):
    peers = Peers(1)
    refused: set[tuple[int, int]] = set()
    for epoch, sequence, is_full in arrivals:
        before = len(taken(peers))
        with full_disk() if is_full else nullcontext():
            code = send(peers, sequence, epoch=epoch)
        log = taken(peers)
        if len(log) > before:
            earlier = [each for each in refused if each[0] == epoch and each[1] < sequence]
            assert not earlier, f"{(epoch, sequence)} was taken before {earlier}"
            refused = {each for each in refused if each[0] >= epoch}
        elif code in PASSING:
            refused.add((epoch, sequence))
        refused -= set(log)
    assert log_is_in_order(taken(peers))


@given(ARRIVALS)
def test_the_newest_epoch_gets_through_once_it_is_sent_in_order(arrivals):
    """What waits in one epoch must not be in the way of another."""
    peers = Peers(1)
    for epoch, sequence, is_full in arrivals:
        with full_disk() if is_full else nullcontext():
            send(peers, sequence, epoch=epoch)
    assert [send(peers, each, epoch=EPOCHS) for each in range(BATCHES)] == [NONE] * BATCHES


def log_is_in_order(log: list[tuple[int, int]]) -> bool:
    """Epochs never go back, and within one each batch follows the one before."""
    return all(
        later[0] > earlier[0] or later == (earlier[0], earlier[1] + 1)
        for earlier, later in pairwise(log)
    )
