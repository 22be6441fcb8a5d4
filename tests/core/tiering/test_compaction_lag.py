"""How far the compaction of diskless topics is behind."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.tiering.test_lag import BROKER, image

from anabranch.core.diskless.pause import Pause
from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.remote.compacted_mark import Mark, encode_mark
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.tiering.compaction_lag import (
    AskTiered,
    DirtyPartition,
    DirtyTopic,
    dirty,
    measure,
)
from anabranch.core.tiering.compaction_plan import (
    Compactable,
    Tiered,
    is_worth_it,
    next_pass,
)
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(bytes(16)), 0)
NOW_MS = 1_000_000
WANTED = Compactable(KEY, 0.5, 0, 1 << 62, 0, 1 << 30)


def segment(start, *, size=100, made_ms=NOW_MS - 500, mark=None) -> RemoteSegment:
    return RemoteSegment(
        SegmentId(start.to_bytes(16, "big")), KEY, start, start + 10, NOW_MS - 900,
        (EpochStart(0, start),), size, 1, 0, state=SegmentState.COPY_SEGMENT_FINISHED,
        event_ms=made_ms, custom_metadata=encode_mark(mark) if mark else b"",
    )  # fmt: skip


def held(*segments) -> Tiered:
    end = segments[-1].end_offset if segments else 0
    return Tiered(LogState(0, end, 0, end), segments, NOW_MS)


CLEAN = segment(0, mark=Mark(1, 10), made_ms=NOW_MS - 9_000)


@pytest.mark.parametrize(
    ("segments", "found"),
    [
        ((), DirtyPartition(0, -1, False)),
        ((segment(0),), DirtyPartition(100, 500, False)),
        ((CLEAN,), DirtyPartition(0, -1, True)),
        ((CLEAN, segment(10, size=99)), DirtyPartition(99, -1, True)),
        ((CLEAN, segment(10, size=101)), DirtyPartition(101, 500, True)),
        (
            (CLEAN, segment(10, made_ms=NOW_MS - 800), segment(20)),
            DirtyPartition(200, 800, True),
        ),
        ((CLEAN, segment(10, size=101, made_ms=NOW_MS + 5)), DirtyPartition(101, 0, True)),
    ],
)
def test_what_is_due_waits_since_its_oldest_dirty_segment_was_made(segments, found):
    assert dirty(held(*segments), WANTED) == found


@pytest.mark.parametrize("seed", range(300))
def test_any_segments_have_a_lag(seed):
    """Also with gaps, as after a restore, and with marks of what lies beyond them."""
    chance = Random(seed)
    starts = sorted(chance.sample(range(0, 100, 10), chance.randint(1, 6)))
    segments = [
        segment(each, mark=chance.choice([None, Mark(1, each + 10), Mark(2, 100)]))
        for each in starts
    ]
    segments[0] = segments[0]._replace(state=chance.choice(list(SegmentState)))
    settings = WANTED._replace(
        least_lag_ms=chance.choice([0, 1, 901]), most_lag_ms=chance.choice([0, 1, 1 << 62])
    )
    partition = held(*segments)
    found = dirty(partition, settings)
    is_due = is_worth_it(next_pass(partition, settings), settings)
    assert found.waited_ms == (500 if is_due else -1)


SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5"}


def measured(tiered, **topics):
    """A round over topics; `tiered` has what the coordinator knows."""
    of = image(topics, **dict.fromkeys(topics, SETTINGS))
    steps = measure(of, BrokerConfig({"node.id": "1"}, {}, {}), BROKER)
    answer, asked = None, []
    try:
        while True:
            match steps.send(answer):
                case AskTiered(keys):
                    asked += keys
                    answer = [tiered.get(each.partition) for each in keys]
                case Pause():
                    answer = None
    except StopIteration as end:
        return end.value, asked


def test_a_topic_has_the_sum_of_its_partitions_that_this_broker_leads():
    tiered = {0: held(CLEAN, segment(10, size=101)), 1: held(segment(0)), 2: None}
    found, asked = measured(tiered, river=[BROKER, BROKER, BROKER, 7])
    assert found == [DirtyTopic("river", 201, 500)]
    assert [each.partition for each in asked] == [0, 1, 2]


def test_where_nothing_was_ever_compacted_nothing_is_said_to_wait():
    found, _ = measured({0: held(segment(0))}, river=[BROKER])
    assert found == [DirtyTopic("river", 100, -1)]
    found, _ = measured({0: held(CLEAN)}, river=[BROKER])
    assert found == [DirtyTopic("river", 0, 0)]
