"""The facts of remote segments: what every coordinator must do, the same tests for each engine."""

from __future__ import annotations

from random import Random

import pytest
from coordinator_kit import TOPICS, Engine

from anabranch.core.diskless.contents import Contents, HeldLog
from anabranch.core.diskless.coordinator import Coordinator, Deposed
from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.errors import StorageFault
from anabranch.core.remote.facts import HeldRemoteLog, TryEnded
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.stores.coordinator import remote_tables
from anabranch.stores.coordinator.front import Front
from anabranch.stores.coordinator.remote_front import RemoteFront
from anabranch.stores.coordinator.remote_tables import _segment

CREEK = LogKey(TOPICS[1], 3)
EPOCHS = (EpochStart(0, 0), EpochStart(2, 60))


def segment(
    number: int, start: int = 0, end: int = 100, *, key: LogKey = CREEK, leader_epoch: int = 2
) -> RemoteSegment:
    epochs = tuple(each._replace(start_offset=each.start_offset + start) for each in EPOCHS)
    return RemoteSegment(
        SegmentId(bytes([number]) * 16), key, start, end, 1_234, epochs, 5_000_000_000, 1,
        leader_epoch, has_aborted=True,
    )  # fmt: skip


@pytest.fixture
def facts(coordinator: Coordinator) -> RemoteFront:
    assert isinstance(coordinator, Front)
    return RemoteFront(coordinator)


async def states(facts: RemoteFront, key: LogKey = CREEK) -> dict[int, SegmentState]:
    known = await facts.look(key)
    assert known is not None
    return {each.segment_id[0]: each.state for each in known.segments}


async def finished(facts: RemoteFront, *segments: RemoteSegment) -> None:
    for each in segments:
        await facts.start(each)
        await facts.finish(each)


@pytest.mark.parametrize(
    ("epochs", "start"),
    [
        ([(1, 0), (2, 40), (4, 100)], 100),  # nothing was lost
        ([(1, 0), (2, 40), (4, 60)], 60),  # an unclean election
        ([(1, 0), (3, 50), (4, 60)], 50),  # and a leader between that never asked
        ([], 80),
    ],
)
async def test_what_was_written_after_the_leader_that_asked_before_is_not_deleted(
    facts, epochs, start
):
    await facts.lead(CREEK, "creek", 2, [EpochStart(1, 0), EpochStart(2, 40)])
    await facts.begin_removal(CREEK, 2, 80, [], [])
    asked = [EpochStart(*each) for each in epochs]
    for _ in range(2):
        known = await facts.lead(CREEK, "creek", 4, asked)
        assert known.log_start == min(start, 80)
    await facts.begin_removal(CREEK, 4, 110, [], [])
    assert (await facts.lead(CREEK, "creek", 4, asked)).log_start == 110


async def test_a_segment_is_known_as_it_was_described(facts, engine: Engine):
    assert await facts.look(CREEK) is None
    assert (await facts.lead(CREEK, "creek", 2)).segments == ()
    whole = segment(1)._replace(custom_metadata=b"\x00\xff")
    await facts.start(whole)
    assert await facts.stands(whole)
    await facts.finish(whole)
    assert not await facts.stands(whole)
    other = RemoteFront(await engine.connect())
    known = await other.look(CREEK)
    [held] = known.segments
    assert held.event_ms > 0
    assert held == whole._replace(state=SegmentState.COPY_SEGMENT_FINISHED, event_ms=held.event_ms)
    assert known.log_start == 0
    assert known.now_ms >= held.event_ms


async def test_calls_that_are_made_again_change_nothing(facts):
    await facts.lead(CREEK, "creek", 2)
    await finished(facts, segment(1))
    await finished(facts, segment(1))
    for _ in range(2):
        await facts.begin_removal(CREEK, 2, 100, [segment(1).segment_id], [])
    assert await states(facts) == {1: SegmentState.DELETE_SEGMENT_STARTED}
    for _ in range(2):
        await facts.forget([segment(1).segment_id])
    assert await states(facts) == {}


async def test_an_older_leader_is_refused_once_a_newer_one_has_asked(facts):
    await facts.lead(CREEK, "creek", 2)
    await facts.start(segment(1))
    await facts.lead(CREEK, "creek", 3)
    assert not await facts.stands(segment(1))
    for call in (
        facts.lead(CREEK, "creek", 2),
        facts.start(segment(2)),
        facts.finish(segment(1)),
        facts.begin_removal(CREEK, 2, 50, [], [segment(1).segment_id]),
    ):
        with pytest.raises(Deposed, match="epoch 2, the coordinator knows 3"):
            await call
    known = await facts.look(CREEK)
    assert (known.log_start, [each.state for each in known.segments]) == (
        0,
        [SegmentState.COPY_SEGMENT_STARTED],
    )


async def test_a_try_that_was_given_up_is_never_finished(facts):
    await facts.lead(CREEK, "creek", 2)
    await facts.start(segment(1))
    await facts.begin_removal(CREEK, 2, 0, [], [segment(1).segment_id])
    for forgotten in ([], [segment(1).segment_id]):
        await facts.forget(forgotten)
        with pytest.raises(TryEnded, match="given up"):
            await facts.finish(segment(1))


async def test_a_try_that_has_finished_meanwhile_is_not_given_up(facts):
    await facts.lead(CREEK, "creek", 2)
    await finished(facts, segment(1))
    await facts.start(segment(2, 100, 200))
    both = [segment(1).segment_id, segment(2).segment_id]
    await facts.begin_removal(CREEK, 2, 0, [], both)
    assert await states(facts) == {
        1: SegmentState.COPY_SEGMENT_FINISHED,
        2: SegmentState.DELETE_SEGMENT_STARTED,
    }
    await facts.forget(both)
    assert await states(facts) == {1: SegmentState.COPY_SEGMENT_FINISHED}


async def test_a_log_start_only_rises_and_each_partition_has_its_own(facts):
    other = LogKey(CREEK.topic_id, 4)
    for key in (CREEK, other):
        await facts.lead(key, "creek", 2)
    await finished(facts, segment(1), segment(2, key=other))
    await facts.begin_removal(CREEK, 2, 70, [], [])
    await facts.begin_removal(CREEK, 2, 40, [segment(2).segment_id], [])
    assert [(await facts.look(key)).log_start for key in (CREEK, other)] == [70, 0]
    assert await states(facts, other) == {2: SegmentState.COPY_SEGMENT_FINISHED}


async def test_a_deleted_topic_ends_tries_and_leaves_its_segments_to_be_removed(
    coordinator: Coordinator, facts
):
    await facts.lead(CREEK, "creek", 2)
    await finished(facts, segment(1))
    await facts.start(segment(2, 100, 200))
    assert await facts.orphans(10) == []
    assert await facts.topics(ZERO_TOPIC_ID, 10) == [CREEK.topic_id]
    await coordinator.delete_topics(1, [CREEK.topic_id])
    assert await facts.topics(ZERO_TOPIC_ID, 10) == []
    assert [each.segment_id[0] for each in await facts.orphans(10)] == [1, 2]
    for call in (
        facts.lead(CREEK, "creek", 9),
        facts.start(segment(3, 200, 300)),
        facts.finish(segment(2, 100, 200)),
    ):
        with pytest.raises(TryEnded, match="deleted"):
            await call
    await facts.forget([each.segment_id for each in await facts.orphans(10)])
    assert await facts.orphans(10) == []


async def test_facts_are_loaded_into_a_coordinator_that_has_none(facts, engine: Engine):
    await facts.lead(CREEK, "creek", 2)
    await finished(facts, segment(1), segment(2, 100, 200))
    known = await facts.look(CREEK)
    held = HeldRemoteLog("creek", CREEK, 2, 30, known.segments)
    anew = RemoteFront(await engine.make_empty())
    await anew.load([held])
    restored = await anew.look(CREEK)
    assert (restored.log_start, restored.segments) == (30, known.segments)
    with pytest.raises(Deposed):
        await anew.lead(CREEK, "creek", 1)
    with pytest.raises(StorageFault, match="needs an empty one"):
        await anew.load([held])


async def test_a_restored_coordinator_refuses_classic_leaders_of_what_is_diskless(
    facts, engine: Engine
):
    await facts.lead(CREEK, "creek", 2)
    await finished(facts, segment(1))
    known = await facts.look(CREEK)
    classic = LogKey(CREEK.topic_id, 1)
    coordinator = await engine.make_empty()
    state = LogState(0, 100, 10, 100, 2)
    await coordinator.load(Contents([HeldLog(CREEK, "creek", state)], [], [], []))
    anew = RemoteFront(coordinator)
    await anew.load(
        [HeldRemoteLog("creek", CREEK, 2, 0, known.segments), HeldRemoteLog("c", classic, 2, 0, ())]
    )
    with pytest.raises(TryEnded, match="diskless now"):
        await anew.lead(CREEK, "creek", 3)
    await anew.lead(classic, "c", 3)


async def test_tries_and_topics_are_known_by_their_segments(facts):
    await facts.lead(CREEK, "creek", 2)
    assert await facts.copied_topics() == []
    many = [segment(each, each * 100, each * 100 + 100) for each in range(1, 4)]
    await finished(facts, *many[:2])
    await facts.start(many[2])
    ids = [SegmentId(bytes([each % 256, each // 256]) * 8) for each in range(1_200)]
    there = {each.segment_id for each in many}
    assert await facts.known([*ids, *there]) == there
    assert await facts.known([]) == set()
    assert await facts.copied_topics() == [CREEK.topic_id]


@pytest.mark.parametrize("seed", range(4))
async def test_who_asks_for_what_has_changed_knows_as_much_as_who_asks_for_all(
    facts, engine: Engine, seed, monkeypatch
):
    """Also after it has not asked for long, and when it may keep few segments in memory."""
    random = Random(seed)
    if seed % 2:
        monkeypatch.setattr("anabranch.stores.coordinator.remote_reads.MOST_SEGMENTS", 6)
    front = await engine.connect()
    readers = [RemoteFront(front) for _ in range(3)]
    keys = [CREEK, CREEK._replace(partition=4)]
    numbers, running, done, removed = iter(range(1, 200)), [], [], []
    for key in keys:
        await facts.lead(key, "creek", 2)
    for _ in range(120):
        key = random.choice(keys)
        mine = [each for each in done if each.key == key]
        match random.randrange(6):
            case 0 | 1:
                at = random.randrange(50)
                running.append(segment(next(numbers), at, at + 5, key=key))
                await facts.start(running[-1])
            case 2 if running:
                done.append(running.pop(random.randrange(len(running))))
                await facts.finish(done[-1])
            case 3 if mine or running:
                gone = random.sample(mine, min(2, len(mine)))
                lost = [each for each in running if each.key == key][:1]
                ids = [[each.segment_id for each in some] for some in (gone, lost)]
                await facts.begin_removal(key, 2, 0, *ids)
                done = [each for each in done if each not in gone]
                running = [each for each in running if each not in lost]
                removed += [*gone, *lost]
            case 4 if removed:
                over = removed.pop(0)
                await facts.forget([over.segment_id])
        reader, asked = random.choice(readers), random.choice(keys)
        found, whole = await reader.look(asked), await RemoteFront(front).look(asked)
        assert found is not None and whole is not None
        assert found.segments == whole.segments
    for each in readers:
        again = await each.look(CREEK)
        assert again is not None
        if not seed % 2:
            assert (await each.look(CREEK)).segments is again.segments, "nothing has changed"


async def test_little_is_read_of_a_partition_with_many_segments(facts, monkeypatch):
    await facts.lead(CREEK, "creek", 2)
    many = [segment(at, at * 5, at * 5 + 5) for at in range(1, 101)]
    await finished(facts, *many)
    decoded = []
    monkeypatch.setattr(
        remote_tables, "_segment", lambda row, to=_segment: decoded.append(row) or to(row)
    )
    assert len((await facts.look(CREEK)).segments) == len(decoded) == 100
    decoded.clear()
    await finished(facts, segment(200, 600, 605))
    await facts.begin_removal(CREEK, 2, 5, [many[0].segment_id], [])
    assert len((await facts.lead(CREEK, "creek", 2)).segments) == 101
    await facts.forget([many[0].segment_id])
    assert len((await facts.look(CREEK)).segments) == 100
    assert len(decoded) <= 4
