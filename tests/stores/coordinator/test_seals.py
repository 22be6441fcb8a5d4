"""Seals at the coordinator: how a classic partition ends and a diskless one goes on, on each
engine."""

from __future__ import annotations

import pytest
from coordinator_kit import BROKER, TOPICS, Engine, batch, commit, placed, prepare

from anabranch.core.diskless.commit import Producer, Written
from anabranch.core.diskless.coordinator import Coordinator, Deposed
from anabranch.core.diskless.rows import LogKey, LogState, NewLogs, Wanted
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.remote.facts import TryEnded
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.tiering.plan import Eligible, next_segment
from anabranch.core.tiering.seals import Progress, Seal
from anabranch.stores.coordinator.front import Front
from anabranch.stores.coordinator.remote_front import RemoteFront
from anabranch.stores.coordinator.seal_front import SealFront
from anabranch.stores.coordinator.tiering_front import TieringFront

TOPIC = TOPICS[1]
CREEK = LogKey(TOPIC, 0)
NAME = "creek"
LEADER_EPOCH = 3
MIGRATION = 40


def segment(number: int, start: int, end: int, epoch: int = LEADER_EPOCH) -> RemoteSegment:
    return RemoteSegment(
        SegmentId(bytes([number]) * 16), CREEK, start, end, 1_234, (EpochStart(epoch, start),),
        1_000, BROKER, LEADER_EPOCH,
    )  # fmt: skip


def seal(end: int, *kept: RemoteSegment, start: int = 0, migration: int = MIGRATION) -> Seal:
    producer = Producer(2, (Written(0, 4, 10), Written(5, 9, 15)))
    ids = tuple(each.segment_id for each in kept)
    return Seal(CREEK, NAME, migration, LEADER_EPOCH, start, end, ids, ((7, producer),), 900)


class Classic:
    """A classic partition with a remote log, as its leader and the controller tell of it."""

    def __init__(self, on: Coordinator) -> None:
        assert isinstance(on, Front)
        self.on, self.facts, self.seals = on, RemoteFront(on), SealFront(on)

    async def copied(self, *segments: RemoteSegment) -> None:
        await self.facts.lead(CREEK, NAME, LEADER_EPOCH)
        for each in segments:
            await self.facts.start(each)
            await self.facts.finish(each)

    async def becomes_diskless(self) -> LogState:
        await self.on.create_logs(1, [NewLogs(TOPIC, NAME, 0, 1)])
        (state,) = await self.on.states([CREEK])
        assert state is not None
        return state


@pytest.fixture
def classic(coordinator: Coordinator) -> Classic:
    return Classic(coordinator)


async def test_a_sealed_partition_goes_on_where_it_ended(classic, engine: Engine):
    first, second = segment(1, 0, 10, epoch=1), segment(2, 10, 20)
    await classic.copied(first, second)
    await classic.seals.seal(seal(20, first, second))
    heard = classic.on.changes()
    assert await anext(heard) == []
    state = await classic.becomes_diskless()
    assert state == LogState(0, 20, 2_000, 20, LEADER_EPOCH)
    (change,) = await anext(heard)
    assert (change.key, change.state) == (CREEK, state)
    other = await engine.connect()
    assert await other.states([CREEK]) == [state]
    answer = await commit(classic.on, batch(CREEK, 5))
    assert answer.verdicts[0].base_offset == 20
    (found,) = await other.find([Wanted(CREEK, 20, 1 << 20)])
    assert found.state == LogState(0, 25, 2_100, 20, LEADER_EPOCH)
    assert [run[1:3] for run in found.runs] == [(20, 25)]
    await classic.becomes_diskless()  # made again, nothing changes
    assert await other.states([CREEK]) == [found.state]


async def test_producers_go_on_with_what_follows_and_hear_of_what_came_before(classic):
    whole = segment(1, 0, 20)
    await classic.copied(whole)
    await classic.seals.seal(seal(20, whole))
    await classic.becomes_diskless()

    async def verdict(sequence: int, epoch: int = 2) -> tuple[ErrorCode, int]:
        each = batch(CREEK, 5, producer=7, epoch=epoch, sequence=sequence)
        (found,) = (await commit(classic.on, each)).verdicts
        return found.code, found.base_offset

    assert await verdict(5) == (ErrorCode.NONE, 15)
    assert await verdict(0) == (ErrorCode.NONE, 10)
    assert (await verdict(20))[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await verdict(10, epoch=1))[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await verdict(10) == (ErrorCode.NONE, 20)


async def test_a_producer_that_the_log_had_forgotten_goes_on(classic):
    whole = segment(1, 0, 20)
    await classic.copied(whole)
    await classic.seals.seal(seal(20, whole))
    await classic.becomes_diskless()
    late = batch(CREEK, 5, producer=500, sequence=50)
    made = placed(await prepare(classic.on), late)._replace(waited_for=frozenset({0}))
    (found,) = (await classic.on.commit(made)).verdicts
    assert (found.code, found.base_offset) == (ErrorCode.NONE, 20)


@pytest.mark.parametrize(
    ("end", "start", "why"),
    [
        (30, 0, "do not hold all offsets from 0 to 30"),
        (20, 0, "do not hold all offsets from 0 to 20"),  # 5 to 10 are missing
        (15, 10, "do not hold all offsets from 10 to 15"),
    ],
)
async def test_a_seal_without_all_of_its_segments_is_refused(classic, end, start, why):
    kept = segment(1, 0, 5), segment(2, 10, 20)
    await classic.copied(*kept)
    with pytest.raises(StorageFault, match=why):
        await classic.seals.seal(seal(end, *kept, start=start))
    assert await classic.seals.progress(TOPIC, MIGRATION, []) == Progress(0, 0)
    await classic.seals.seal(seal(20, *kept, start=10))


async def test_segments_that_are_not_kept_are_removed_and_cleared_away(classic):
    cut, whole = segment(1, 0, 30, epoch=2), segment(2, 0, 20)
    await classic.copied(cut, whole)
    await classic.facts.start(segment(3, 20, 25))
    await classic.seals.seal(seal(20, whole))
    assert (await classic.becomes_diskless()).byte_size == 1_000
    facts = await classic.facts.look(CREEK)
    states = {each.segment_id[0]: each.state for each in facts.segments}
    assert states == {
        1: SegmentState.DELETE_SEGMENT_STARTED,
        2: SegmentState.COPY_SEGMENT_FINISHED,
        3: SegmentState.DELETE_SEGMENT_STARTED,
    }
    assert {each.segment_id[0] for each in await classic.facts.orphans(9)} == {1, 3}


async def test_an_older_leader_and_a_cancelled_migration_seal_nothing(classic):
    whole = segment(1, 0, 20)
    await classic.copied(whole)
    await classic.facts.lead(CREEK, NAME, LEADER_EPOCH + 1)
    with pytest.raises(Deposed):
        await classic.seals.seal(seal(20, whole))
    with pytest.raises(Deposed):
        await classic.seals.ready(CREEK, MIGRATION, LEADER_EPOCH)
    newer = LEADER_EPOCH + 1
    await classic.seals.ready(CREEK, MIGRATION + 1, newer)
    with pytest.raises(TryEnded, match="cancelled"):
        await classic.seals.seal(seal(20, whole)._replace(leader_epoch=newer))
    assert await classic.seals.progress(TOPIC, MIGRATION, []) == Progress(0, 0)
    assert await classic.seals.progress(TOPIC, MIGRATION + 1, []) == Progress(1, 0)
    await classic.seals.seal(seal(20, whole, migration=99)._replace(leader_epoch=newer))
    await classic.seals.ready(CREEK, 99, newer)  # late: it stays sealed
    assert await classic.seals.progress(TOPIC, 99, [BROKER]) == Progress(1, 1, ((0, 20),))


async def test_a_later_seal_takes_the_place_of_a_cancelled_one(classic):
    first, second = segment(1, 0, 20), segment(2, 20, 30)
    await classic.copied(first)
    await classic.seals.seal(seal(20, first))
    await classic.copied(second)  # it was cancelled, and records were written
    later = seal(30, first, second, migration=MIGRATION + 1)._replace(producers=())
    await classic.seals.seal(later)
    assert await classic.becomes_diskless() == LogState(0, 30, 2_000, 30, LEADER_EPOCH)
    late = batch(CREEK, producer=7, epoch=2, sequence=10)
    assert (await commit(classic.on, late)).verdicts[0].code is not ErrorCode.NONE


async def test_no_classic_leader_changes_what_is_diskless(classic):
    whole = segment(1, 0, 20)
    await classic.copied(whole)
    await classic.seals.seal(seal(20, whole))
    await classic.facts.begin_removal(CREEK, LEADER_EPOCH, 5, [], [])  # retention goes on
    assert (await classic.becomes_diskless()).start_offset == 5
    for epoch in (LEADER_EPOCH, LEADER_EPOCH + 5):
        with pytest.raises(TryEnded, match="diskless now"):
            await classic.facts.lead(CREEK, NAME, epoch)
        with pytest.raises(TryEnded):
            await classic.facts.begin_removal(CREEK, epoch, 20, [whole.segment_id], [])
        with pytest.raises(TryEnded):
            await classic.facts.start(segment(4, 20, 30)._replace(leader_epoch=epoch))
        with pytest.raises(TryEnded):
            await classic.seals.seal(seal(20, whole)._replace(leader_epoch=epoch))


async def test_an_empty_partition_is_sealed_and_one_without_any_record_left(classic):
    await classic.facts.lead(CREEK, NAME, LEADER_EPOCH)
    await classic.seals.seal(seal(0))
    assert await classic.becomes_diskless() == LogState(0, 0, 0, 0, LEADER_EPOCH)


async def test_rows_of_which_retention_took_all_begin_at_the_end(classic):
    await classic.facts.lead(CREEK, NAME, LEADER_EPOCH)
    await classic.seals.seal(seal(20, start=20))
    assert await classic.becomes_diskless() == LogState(20, 20, 0, 20, LEADER_EPOCH)
    answer = await commit(classic.on, batch(CREEK, 5))
    assert answer.verdicts[0].base_offset == 20


async def test_retention_counts_what_was_classic_and_tiering_goes_on_behind_it(classic):
    whole = segment(1, 0, 20)
    await classic.copied(whole)
    await classic.seals.seal(seal(20, whole))
    await classic.becomes_diskless()
    await commit(classic.on, batch(CREEK, 5))
    claims = TieringFront(classic.on)
    await claims.claim(11, "job", [BROKER])
    wanted = Eligible(CREEK, 0, 0, 1 << 40)
    (aged,) = await claims.aged(11, [wanted])
    assert aged is not None
    assert aged.before is not None
    assert aged.before.segment_id == whole.segment_id
    planned = next_segment(aged.state, aged.runs, wanted, aged.now_ms)
    assert planned is not None
    tiered = segment(9, *planned[:2])._replace(leader_epoch=LEADER_EPOCH + 2, byte_size=100)
    await claims.start(11, NAME, tiered)
    state = await claims.finish(CREEK, LEADER_EPOCH + 2, tiered.segment_id)
    assert state == LogState(0, 25, 1_100, 25, LEADER_EPOCH)
    state, count = await classic.on.expire(CREEK, older_than_ms=-1, most_bytes=100, most_runs=10)
    assert (state, count) == (LogState(20, 25, 100, 25, LEADER_EPOCH), 1)
    assert [each.segment_id for each in await classic.facts.orphans(9)] == [whole.segment_id]


async def test_a_broker_that_does_not_know_of_seals_holds_a_migration_up(classic):
    assert await classic.seals.progress(TOPIC, MIGRATION, [BROKER]) == Progress(0, 0)
    with pytest.raises(StorageFault, match="broker 2 does not know how a topic becomes diskless"):
        await classic.seals.progress(TOPIC, MIGRATION, [BROKER, 2])


async def test_a_coordinator_that_was_restored_goes_by_the_segments(classic):
    """Its seals are lost, and rows that no manifest told of."""
    whole = segment(1, 5, 20)
    await classic.copied(whole)
    assert await classic.becomes_diskless() == LogState(5, 20, 1_000, 20, LEADER_EPOCH)


async def test_a_restored_partition_without_segments_begins_where_the_metadata_says(classic):
    """Retention, or DeleteRecords, had taken all of its records before it was sealed."""
    await classic.on.create_logs(1, [NewLogs(TOPIC, NAME, 0, 3, (20, 0))])
    keys = [LogKey(TOPIC, each) for each in range(3)]
    found = await classic.on.states(keys)
    assert found == [LogState(20, 20, 0, 20, 0), LogState(0, 0), LogState(0, 0)]
    answer = await commit(classic.on, batch(CREEK, 5))
    assert answer.verdicts[0].base_offset == 20


async def test_a_deleted_topic_takes_its_seals_along(classic):
    await classic.copied()
    await classic.seals.seal(seal(0))
    await classic.on.delete_topics(1, [TOPIC])
    assert await classic.seals.progress(TOPIC, MIGRATION, []) == Progress(0, 0)
    with pytest.raises(TryEnded):
        await classic.seals.seal(seal(0))
