"""What a leader asks for, whose topic becomes diskless, step by step."""

from __future__ import annotations

import pytest
from tests.core.remote.remote_kit import KEY

from anabranch.core.diskless.migration import Phase, Step
from anabranch.core.errors import StorageFault
from anabranch.core.remote import rounds
from anabranch.core.remote.facts import Facts
from anabranch.core.remote.lineage import Lineage
from anabranch.core.remote.local_log import Limits, LocalSegment
from anabranch.core.remote.rounds import Leading, LocalView
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.remote.unfinished import Removals
from anabranch.core.tiering.seal_rounds import (
    LITTLE_BYTES,
    LogEnd,
    LookAtEnd,
    MarkReady,
    RollLog,
    SealLog,
    migration_round,
)

PREPARING, SEALING = Phase(Step.PREPARING, 7), Phase(Step.SEALING, 7)
LEADING = Leading("cluster", KEY, 3, Removals(), set())
WHOLE = RemoteSegment(
    SegmentId(bytes(16)), KEY, 0, 20, 1, (EpochStart(1, 0),), 100, 1, 3,
    state=SegmentState.COPY_SEGMENT_FINISHED,
)  # fmt: skip
LOCAL = (LocalSegment(0, 20, 100, 0),)


class Leader:
    """A log of 20 records, in one segment, and what a round asks of it."""

    def __init__(
        self, *, active=0, high_watermark=20, stable=20, in_sync=True, copied=True,
        epochs=WHOLE.leader_epochs, local=LOCAL,
    ):  # fmt: skip
        self.end = LogEnd(20, high_watermark, stable, active, in_sync)
        self.grows_to = None
        self.copied, self.epochs, self.local = copied, epochs, local
        self.asked = []

    def run(self, phase):
        steps, answer = migration_round(LEADING, phase), None
        try:
            while True:
                asked = steps.send(answer)
                self.asked.append(type(asked))
                answer = self.answer(asked)
        except StopIteration as end:
            return end.value

    def answer(self, asked):
        if isinstance(asked, LookAtEnd):
            return self.end
        if isinstance(asked, RollLog):
            self.end = self.end._replace(active_bytes=0)
        if isinstance(asked, rounds.ReadFacts) and self.grows_to is not None:
            self.end = self.end._replace(end_offset=self.grows_to)
        if isinstance(asked, rounds.ReadFacts):
            return Facts(0, (WHOLE,) if self.copied else (), 0)
        if isinstance(asked, rounds.LookAtLog):
            is_open = self.end.active_bytes > 0
            local = () if is_open else self.local
            return LocalView(
                Lineage(self.epochs, 3), local, 0, self.end.high_watermark,
                self.end.last_stable_offset, Limits(), Limits(), copies=self.copied,
                steady_ms=0, wall_ms=0,
            )  # fmt: skip
        if isinstance(asked, SealLog):
            self.sealed = asked
        return None


def test_a_log_with_little_left_is_ready():
    leader = Leader(active=LITTLE_BYTES)
    assert leader.run(PREPARING).is_ready
    assert leader.asked[-1] is MarkReady
    assert RollLog not in leader.asked
    leader = Leader(active=LITTLE_BYTES + 1)
    assert leader.run(PREPARING).is_ready
    assert RollLog in leader.asked


@pytest.mark.parametrize(
    ("unfit", "why"),
    [
        ({"in_sync": False}, "a replica is not in sync"),
        ({"stable": 15}, "a transaction is open from offset 15 on"),
        ({"copied": False, "local": (LocalSegment(0, 20, LITTLE_BYTES + 1, 0),)},
         "1,048,577 bytes are to be copied"),
    ],
)  # fmt: skip
def test_a_log_with_an_open_transaction_or_a_replica_behind_is_not_ready(unfit, why):
    leader = Leader(**unfit)
    migrated = leader.run(PREPARING)
    assert not migrated.is_ready
    assert migrated.waits_for == why
    assert MarkReady not in leader.asked


CUT = (EpochStart(1, 0), EpochStart(2, 12))
"""Of the segment only offsets 0 to 12 are those of the log."""


@pytest.mark.parametrize(
    ("local", "missing"),
    [
        ((LocalSegment(0, 12, 100, 0), LocalSegment(12, 20, 100, 0)), "0 to 12"),
        ((LocalSegment(12, 20, 100, 0, is_active=True),), "0 to 12"),
        ((LocalSegment(0, 20, 100, 0),), None),  # it is copied anew
        ((LocalSegment(0, 20, 100, 0, is_active=True),), None),
    ],
)
def test_a_log_that_agrees_with_a_segment_only_in_part_is_not_ready_and_says_why(local, missing):
    leader = Leader(epochs=CUT, local=local)
    migrated = leader.run(PREPARING)
    assert migrated.is_ready is (missing is None)
    if missing:
        assert migrated.waits_for.startswith(f"offsets {missing} are held by no remote segment")
        assert MarkReady not in leader.asked
    else:
        assert migrated.waits_for == ""


def test_a_log_is_closed_copied_and_sealed():
    leader = Leader(active=10)
    assert leader.run(SEALING).is_sealed
    assert leader.asked.index(RollLog) < leader.asked.index(SealLog)
    assert leader.sealed == SealLog(KEY, 7, 3, 0, 20, (WHOLE.segment_id,))


@pytest.mark.parametrize(
    "unfit", [{"high_watermark": 19, "stable": 19}, {"stable": 15}, {"copied": False}]
)
@pytest.mark.parametrize("active", [0, 10])
def test_nothing_is_sealed_that_is_not_committed_and_copied(unfit, active):
    leader = Leader(active=active, **unfit)
    migrated = leader.run(SEALING)
    assert not migrated.is_sealed
    assert migrated.waits_for
    assert SealLog not in leader.asked


@pytest.mark.parametrize("unfit", [{"high_watermark": 19, "stable": 19}, {"stable": 15}])
def test_a_log_without_a_settled_end_leaves_the_coordinator_to_others(unfit):
    leader = Leader(active=10, **unfit)
    migrated = leader.run(SEALING)
    assert (migrated.done, migrated.fault) == (None, None)
    assert leader.asked == [LookAtEnd]


def test_a_log_that_grew_during_the_round_is_not_sealed():
    leader = Leader()
    leader.grows_to = 21
    migrated = leader.run(SEALING)
    assert not migrated.is_sealed
    assert migrated.waits_for == "offsets 20 to 21 are not committed"
    assert SealLog not in leader.asked


def test_a_coordinator_that_fails_ends_the_round():
    steps = migration_round(LEADING, SEALING)
    assert isinstance(next(steps), LookAtEnd)
    with pytest.raises(StorageFault):
        steps.throw(StorageFault("away"))
