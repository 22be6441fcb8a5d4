"""Tiering at the coordinator: claims, and segments that take the place of runs, on each engine."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from itertools import pairwise
from random import Random

import pytest
from coordinator_kit import BROKER, CLUSTER, DELTA, RIVER, Engine, batch, commit, make_river

from anabranch.core.diskless.coordinator import Coordinator, Deposed
from anabranch.core.diskless.rows import MOST_RUNS_FOUND, LogKey, LogState, Run, Wanted
from anabranch.core.errors import StorageFault
from anabranch.core.remote.facts import TryEnded
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.core.tiering.claims import LEASE_MS, ClaimHeld, TieredBefore
from anabranch.core.tiering.plan import Eligible, PlannedSegment, next_segment
from anabranch.stores.coordinator.front import Front, Lane
from anabranch.stores.coordinator.migrations import FACTS, MIGRATIONS, SQLITE
from anabranch.stores.coordinator.remote_front import RemoteFront
from anabranch.stores.coordinator.sqlite import SqliteCoordinator
from anabranch.stores.coordinator.tiering_front import TieringFront

JOB, OTHER = 11, 12
ALL = 1 << 40
CALLS = 120


def eligible(key: LogKey = RIVER, *, age_ms: int = 0, least: int = 0, most: int = ALL) -> Eligible:
    return Eligible(key, age_ms, least, most)


def described(
    key: LogKey, planned: PlannedSegment, number: int, leader_epoch: int = 0
) -> RemoteSegment:
    start, end, _ = planned
    return RemoteSegment(
        SegmentId(number.to_bytes(16, "big")), key, start, end, 1000, (EpochStart(0, start),),
        planned.byte_size, BROKER, leader_epoch,
    )  # fmt: skip


class Job:
    """A tiering job, as far as the coordinator sees it."""

    def __init__(self, on: Coordinator, claim_id: int = JOB) -> None:
        assert isinstance(on, Front)
        self.claims, self.facts = TieringFront(on), RemoteFront(on)
        self.claim_id = claim_id

    async def begin(self) -> None:
        await self.claims.claim(self.claim_id, f"job-{self.claim_id}", [BROKER])

    async def plan(self, wanted: Eligible) -> PlannedSegment | None:
        (aged,) = await self.claims.aged(self.claim_id, [wanted])
        assert aged is not None
        return next_segment(aged.state, aged.runs, wanted, aged.now_ms)

    async def tier(self, wanted: Eligible, number: int) -> LogState | None:
        planned = await self.plan(wanted)
        if planned is None:
            return None
        segment = described(wanted.key, planned, number)
        await self.claims.start(self.claim_id, "river", segment)
        return await self.claims.finish(segment.key, 0, segment.segment_id)


async def runs_of(on: Coordinator, key: LogKey, offset: int, end: int) -> list[Run]:
    held: list[Run] = []
    while offset < end:
        (found,) = await on.find([Wanted(key, offset, ALL)])
        assert len(found.runs) <= MOST_RUNS_FOUND
        held += found.runs
        if not found.runs:
            break
        offset = found.runs[-1].end_offset
    return held


async def check(on: Coordinator, key: LogKey, end_offset: int) -> LogState:
    """Each offset from the log start on is held once, and sizes are those of what is held."""
    (state,) = await on.states([key])
    assert state is not None
    assert state.high_watermark == end_offset
    facts = await RemoteFront(on).look(key) if isinstance(on, Front) else None
    finished = [] if facts is None else [each for each in facts.segments if each.is_finished]
    segments = [each for each in finished if each.end_offset > state.start_offset]
    runs = await runs_of(on, key, state.first_run_offset, end_offset)
    at = min([each.start_offset for each in segments], default=state.first_run_offset)
    assert not segments or at <= state.start_offset
    for each in segments:
        assert each.start_offset == at
        at = each.end_offset
    assert not segments or at == state.tiered_end
    if runs:
        assert runs[0].base_offset <= max(at, state.start_offset)
        assert runs[0].base_offset >= state.tiered_end
    for before, after in pairwise(runs):
        assert before.end_offset == after.base_offset
    assert (runs[-1].end_offset if runs else state.first_run_offset) == end_offset
    return state


async def test_a_segment_takes_the_place_of_its_runs_and_frees_their_objects(coordinator):
    for _ in range(3):
        await commit(coordinator, batch(count=5), batch(DELTA, 2))
    job = Job(coordinator)
    await job.begin()
    state = await job.tier(eligible(), 1)
    assert state == LogState(0, 15, 300, 15)
    assert (await check(coordinator, RIVER, 15)).tiered_end == 15
    assert await coordinator.to_delete(0, 10) == []  # the other partition needs the objects
    assert await job.tier(eligible(DELTA), 2) == LogState(0, 6, 300, 6)
    assert len(await coordinator.to_delete(0, 10)) == 3
    assert await job.plan(eligible()) is None


async def test_lags_are_of_rows_that_are_old_enough_and_not_tiered(coordinator, engine):
    await commit(coordinator, batch(count=5), batch(DELTA, 2))
    engine.advance(10_000)
    await commit(coordinator, batch(count=5))
    claims = Job(coordinator).claims
    wanted = [eligible(each, age_ms=9_000, least=100) for each in (RIVER, DELTA)]
    gone = eligible(LogKey(RIVER.topic_id, 9))
    first, second, third = await claims.lags([*wanted, gone], 100)
    assert third is None
    assert [first[:2], second[:2]] == [(1, 100), (1, 100)]
    assert 1_000 <= first.waited_ms < 10_000
    engine.advance(10_000)
    assert (await claims.lags(wanted, 100))[0][:2] == (2, 200)
    assert (await claims.lags(wanted, 1))[0][:2] == (1, 100)
    job = Job(coordinator)
    await job.begin()
    await job.tier(wanted[0], 1)
    assert [tuple(each) for each in await claims.lags(wanted[:1], 100)] == [(0, 0, -1, True)]


async def test_what_was_committed_after_the_claim_waits_for_the_next_one(coordinator, engine):
    await commit(coordinator, batch(count=5))
    job = Job(coordinator)
    await job.begin()
    await commit(coordinator, batch(count=5))
    planned = await job.plan(eligible())
    assert planned is not None
    assert (planned.start_offset, planned.end_offset) == (0, 5)
    await job.claims.release(JOB)
    await Job(coordinator, OTHER).begin()
    planned = await Job(coordinator, OTHER).plan(eligible())
    assert planned is not None
    assert planned.end_offset == 10


async def test_a_young_commit_and_a_small_segment_wait(coordinator, engine):
    await commit(coordinator, batch(count=5))
    job = Job(coordinator)
    await job.begin()
    assert await job.plan(eligible(age_ms=60_000)) is None
    assert await job.plan(eligible(least=101)) is None
    engine.advance(61_000)
    assert await job.plan(eligible(age_ms=60_000, least=100)) is not None


async def test_one_job_holds_the_claim_until_it_is_silent(coordinator, engine: Engine):
    await commit(coordinator, batch(count=5))
    job, other = Job(coordinator), Job(await engine.connect(), OTHER)
    await job.begin()
    await job.begin()
    with pytest.raises(ClaimHeld, match="job-11"):
        await other.begin()
    segment = described(RIVER, await job.plan(eligible()), 1)
    await job.claims.start(JOB, "river", segment)
    await expire_claim(engine, coordinator)
    await other.begin()
    assert not await job.claims.stands(JOB, segment.segment_id)
    for late in (
        job.claims.start(JOB, "river", segment._replace(segment_id=SegmentId(bytes(16)))),
        job.claims.aged(JOB, [eligible()]),
    ):
        with pytest.raises(ClaimHeld, match="taken the claim"):
            await late
    with pytest.raises(TryEnded, match="given up"):
        await job.claims.finish(RIVER, 0, segment.segment_id)
    assert await other.tier(eligible(), 2) == LogState(0, 5, 100, 5)
    assert [each.segment_id for each in await other.facts.orphans(10)] == [segment.segment_id]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_a_claim_from_a_clock_that_was_ahead_keeps_no_job_away(coordinator, engine: Engine):
    await commit(coordinator, batch(count=5))
    job, other = Job(coordinator), Job(await engine.connect(), OTHER)
    day_ms = 86_400_000
    engine.advance(day_ms)
    await job.begin()
    segment = described(RIVER, await job.plan(eligible()), 1)
    await job.claims.start(JOB, "river", segment)
    engine.advance(-day_ms)
    refusal = None
    try:
        await other.begin()
    except ClaimHeld as held:
        refusal = held
    assert refusal is None
    with pytest.raises(TryEnded, match="given up"):
        await job.claims.finish(RIVER, 0, segment.segment_id)
    assert await other.tier(eligible(), 2) == LogState(0, 5, 100, 5)


async def test_a_segment_that_was_tiered_already_is_refused(coordinator):
    await commit(coordinator, batch(count=5))
    job = Job(coordinator)
    await job.begin()
    planned = await job.plan(eligible())
    first, second = described(RIVER, planned, 1), described(RIVER, planned, 2)
    for each in (first, second):
        await job.claims.start(JOB, "river", each)
    state = await job.claims.finish(RIVER, 0, first.segment_id)
    assert await job.claims.finish(RIVER, 0, first.segment_id) == state  # its answer was lost
    with pytest.raises(TryEnded) as again:
        await job.claims.finish(RIVER, 0, second.segment_id)
    with pytest.raises(TryEnded) as later:
        await job.claims.start(JOB, "river", described(RIVER, planned, 3))
    assert isinstance(again.value, TieredBefore) and isinstance(later.value, TieredBefore)
    with pytest.raises(TryEnded) as refused:
        await job.claims.start(JOB, "river", described(RIVER, PlannedSegment(0, 4, ()), 4))
    assert not isinstance(refused.value, TieredBefore)
    await job.claims.release(JOB)
    other = Job(coordinator, OTHER)
    await other.begin()
    with pytest.raises(TryEnded, match="or is not needed any more"):
        await other.claims.start(OTHER, "river", described(RIVER, planned, 5))
    assert await check(coordinator, RIVER, 5) == state


async def test_a_segment_that_cuts_a_run_in_two_deletes_nothing(coordinator):
    await commit(coordinator, batch(count=5))
    job = Job(coordinator)
    await job.begin()
    await job.claims.start(JOB, "river", described(RIVER, PlannedSegment(0, 3, ()), 1))
    with pytest.raises(StorageFault, match="no row is deleted"):
        await job.claims.finish(RIVER, 0, SegmentId((1).to_bytes(16, "big")))
    assert (await check(coordinator, RIVER, 5)).tiered_end == 0


@pytest.mark.parametrize("end", [1, 1 << 40])
async def test_a_segment_that_ends_where_no_run_does_deletes_nothing(coordinator, end):
    """What is committed later would lie below the tiered end, and be read by nobody."""
    await make_river(coordinator)
    await commit(coordinator, batch(count=5))
    job = Job(coordinator)
    await job.begin()
    planned = await job.plan(eligible())
    segment = described(RIVER, planned._replace(end_offset=planned.end_offset + end), 1)
    await job.claims.start(JOB, "river", segment)
    with pytest.raises(StorageFault, match="no row is deleted"):
        await job.claims.finish(RIVER, 0, segment.segment_id)
    await check(coordinator, RIVER, 5)


async def test_an_older_leader_is_refused(coordinator):
    await commit(coordinator, batch(count=5))
    job = Job(coordinator)
    await job.begin()
    planned = await job.plan(eligible())
    await job.claims.start(JOB, "river", described(RIVER, planned, 1, leader_epoch=3))
    await job.claims.start(JOB, "river", described(RIVER, planned, 2, leader_epoch=4))
    with pytest.raises(Deposed):
        await job.claims.finish(RIVER, 3, SegmentId((1).to_bytes(16, "big")))
    assert (await job.claims.finish(RIVER, 4, SegmentId((1).to_bytes(16, "big")))).tiered_end == 5


async def test_a_broker_that_does_not_know_of_tiering_refuses_the_claim(coordinator):
    claims = TieringFront(coordinator)
    with pytest.raises(StorageFault, match="broker 9 does not know of tiering"):
        await claims.claim(JOB, "job", [BROKER, 9])


async def test_a_deleted_topic_ends_a_try_and_its_segments(coordinator):
    await commit(coordinator, batch(count=5))
    job = Job(coordinator)
    await job.begin()
    assert await job.tier(eligible(), 1)
    await commit(coordinator, batch(count=5))
    await job.claims.release(JOB)
    await job.begin()
    segment = described(RIVER, await job.plan(eligible()), 2)
    await job.claims.start(JOB, "river", segment)
    await coordinator.delete_topics(1, [RIVER.topic_id])
    with pytest.raises(TryEnded, match="deleted"):
        await job.claims.finish(RIVER, 0, segment.segment_id)
    assert await job.claims.aged(JOB, [eligible()]) == [None]
    assert {each.segment_id[-1] for each in await job.facts.orphans(10)} == {1, 2}


async def test_retention_counts_both_sides_and_takes_the_oldest_first(coordinator):
    job = Job(coordinator)
    for number in range(4):
        await commit(coordinator, batch(count=5, timestamp=1000 + number))
        if number < 2:
            await job.begin()
            assert await job.tier(eligible(), number + 1)
            await job.claims.release(JOB)
    state, count = await coordinator.expire(RIVER, older_than_ms=-1, most_bytes=250, most_runs=10)
    assert (state, count) == (LogState(5, 20, 300, 10), 1)
    state, count = await coordinator.expire(RIVER, older_than_ms=1003, most_bytes=-1, most_runs=10)
    assert (state, count) == (LogState(15, 20, 100, 10), 2)
    assert len(await job.facts.orphans(10)) == 2


@pytest.mark.parametrize("seed", range(6))
async def test_any_row_of_calls_keeps_each_record_in_one_place(engine: Engine, seed: int):
    """Two jobs, commits, retention and deletions of records, in any order."""
    on = await engine.connect()
    await make_river(on)
    world = World(seed, engine, on)
    for _ in range(CALLS):
        await world.step()
        for key, end in world.ends.items():
            state = await check(on, key, end)
            assert state.start_offset >= world.starts[key]
            assert state.tiered_end >= world.tiered[key]
            world.starts[key], world.tiered[key] = state.start_offset, state.tiered_end
    assert sum(world.tiered.values())
    await world.check_sizes()


class World:
    """What two jobs, brokers and retention do."""

    def __init__(self, seed: int, engine: Engine, on: Coordinator) -> None:
        self.random, self.engine, self.on = Random(seed), engine, on
        self.jobs = [Job(on, JOB), Job(on, OTHER)]
        self.tries: list[RemoteSegment] = []
        self.number = 0
        self.ends = {RIVER: 0, DELTA: 0}
        self.starts = {RIVER: 0, DELTA: 0}
        self.tiered = {RIVER: 0, DELTA: 0}

    async def step(self) -> None:
        steps = [self.commit, self.commit, self.tier, self.tier, self.finish, self.shorten,
                 self.claim, self.release]  # fmt: skip
        await self.random.choice(steps)()

    async def commit(self) -> None:
        batches = [
            batch(self.random.choice((RIVER, DELTA)), self.random.randint(1, 5),
                  size=self.random.randint(10, 99))
            for _ in range(self.random.randint(1, 4))
        ]  # fmt: skip
        await commit(self.on, *batches)
        for each in batches:
            self.ends[each.key] += each.record_count

    async def claim(self) -> None:
        try:
            await self.random.choice(self.jobs).begin()
        except ClaimHeld:
            if self.random.random() < 0.5:
                await expire_claim(self.engine, self.on)

    async def release(self) -> None:
        if self.random.random() < 0.3:
            job = self.random.choice(self.jobs)
            await job.claims.release(job.claim_id)

    async def tier(self) -> None:
        job = self.random.choice(self.jobs)
        key = self.random.choice((RIVER, DELTA))
        wanted = eligible(key, most=self.random.choice((50, 200, ALL)))
        try:
            await job.begin()
            planned = await job.plan(wanted)
            if planned is None:
                return
            self.number += 1
            segment = described(key, planned, self.number)
            self.tries.append(segment)
            await job.claims.start(job.claim_id, "river", segment)
        except ClaimHeld:
            return
        if self.random.random() < 0.6:
            await self.finish(segment)

    async def finish(self, segment: RemoteSegment | None = None) -> None:
        if segment is None and not self.tries:
            return
        chosen = segment or self.random.choice(self.tries)
        with suppress(TryEnded):
            await self.jobs[0].claims.finish(chosen.key, 0, chosen.segment_id)

    async def shorten(self) -> None:
        key = self.random.choice((RIVER, DELTA))
        if self.random.random() < 0.5:
            await self.on.delete_before([(key, self.random.randint(0, self.ends[key]))])
        else:
            most = self.random.randint(0, 500)
            await self.on.expire(key, older_than_ms=-1, most_bytes=most, most_runs=3)

    async def check_sizes(self) -> None:
        """All that lies below the starts goes, and then sizes are those of what is left, and each
        object without runs waits for deletion."""
        held: set[int] = set()
        for key, end in self.ends.items():
            for _ in range(CALLS):
                state, count = await self.on.expire(
                    key, older_than_ms=-1, most_bytes=-1, most_runs=1000
                )
                if not count:
                    break
            assert state is not None
            runs = await runs_of(self.on, key, state.first_run_offset, end)
            held.update(run.object_id for run in runs)
            facts = await self.jobs[0].facts.look(key)
            finished = [] if facts is None else [e for e in facts.segments if e.is_finished]
            assert all(each.end_offset > state.start_offset for each in finished)
            sizes = [each.byte_size for each in (*runs, *finished)]
            assert state.byte_size == sum(sizes)
        waiting = {number for number, _ in await self.on.to_delete(0, 1000)}
        assert not waiting & held
        assert waiting | held == set(range(1, await self.on.last_id() + 1))


async def expire_claim(engine: Engine, on: Coordinator) -> None:
    """The job that holds the claim is silent for its lease."""
    if engine.name == "sqlite":
        engine.advance(LEASE_MS + 1)
        return
    assert isinstance(on, Front)
    await on.call(
        Lane.UPKEEP,
        lambda tables: tables.do("UPDATE tiering_claims SET expires_ms = 0"),  # type: ignore[attr-defined]
    )


async def test_what_was_committed_before_commits_had_numbers_is_tiered_too(tmp_path):
    path = tmp_path / "diskless.db"
    with closing(sqlite3.connect(path)) as on:
        on.execute(FACTS)
        for statement in (each for step in MIGRATIONS[:4] for each in step):
            on.execute(statement.format(**SQLITE._asdict()))
        facts = {"cluster.id": CLUSTER, "mark": "0a0b0c0d", "controller.epoch": "-1"}
        on.executemany("INSERT INTO facts VALUES (?, ?)", {**facts, "schema.version": "4"}.items())
        on.execute(
            "INSERT INTO logs (topic_id, partition, topic_name, high_watermark, byte_size) "
            "VALUES (?, ?, 'river', 15, 300)", RIVER,
        )  # fmt: skip
        for number in range(1, 4):
            on.execute(
                "INSERT INTO wal_objects (object_id, object_key, state, broker_id, broker_epoch, "
                "prepared_ms, expires_ms, committed_ms, byte_size, live_runs) "
                "VALUES (?, ?, 1, 1, 7, 0, 9, 5, 100, 1)", (number, f"o/{number}"),
            )  # fmt: skip
            on.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, 0, 100, 1000, 0, 0)",
                (*RIVER, 5 * number - 5, 5 * number, number),
            )
        on.commit()
    coordinator = await SqliteCoordinator.open(str(path), CLUSTER)
    try:
        await make_river(coordinator)
        job = Job(coordinator)
        await job.begin()
        assert (await job.claims.lags([eligible()], 9))[0][:2] == (3, 300)
        assert await job.tier(eligible(), 1) == LogState(0, 15, 300, 15)
        await check(coordinator, RIVER, 15)
        assert len(await coordinator.to_delete(0, 10)) == 3
    finally:
        await coordinator.close()
