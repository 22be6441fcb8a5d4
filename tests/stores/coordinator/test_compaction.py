"""Compaction at the coordinator: claims, and segments that take the place of others, on each
engine."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from coordinator_kit import BROKER, DELTA, RIVER, Engine, batch, commit, make_river
from test_tiering import Job as TieringJob
from test_tiering import check, eligible

from anabranch.core.diskless.coordinator import Coordinator, Deposed
from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.errors import StorageFault
from anabranch.core.remote.compacted_mark import Mark, encode_mark
from anabranch.core.remote.facts import TryEnded
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId, SegmentState
from anabranch.core.tiering.claims import LEASE_MS, ClaimHeld
from anabranch.core.tiering.compaction_claims import Swap
from anabranch.stores.coordinator.front import Front, Lane

JOB, OTHER = 21, 22
STEPS = 120


class Job(TieringJob):
    """A compaction job, as far as the coordinator sees it."""

    async def hold(self) -> None:
        await self.claims.claim_compaction(self.claim_id, f"job-{self.claim_id}", [BROKER])

    async def segments(self, key: LogKey = RIVER) -> list[RemoteSegment]:
        (held,) = await self.claims.tiered([key])
        return [] if held is None else [each for each in held.segments if each.is_finished]

    async def begin_try(
        self, old: list[RemoteSegment], number: int, *, size: int = 10, leader_epoch: int = 0
    ) -> Swap:
        start, end = old[0].start_offset, old[-1].end_offset
        segment = RemoteSegment(
            SegmentId(number.to_bytes(16, "big")), old[0].key, start, end, 1000,
            (EpochStart(0, start),), size, BROKER, leader_epoch,
            custom_metadata=encode_mark(Mark(1, end)),
        )  # fmt: skip
        await self.claims.start_compacted(self.claim_id, "river", segment)
        return Swap(segment.segment_id, tuple(each.segment_id for each in old))

    async def swap(self, *swaps: Swap, key: LogKey = RIVER, leader_epoch: int = 0) -> LogState:
        return await self.claims.swap(self.claim_id, key, leader_epoch, swaps)


async def tiered_river(on: Coordinator, count: int = 3) -> None:
    """So many segments of 5 records and 100 bytes."""
    tiering = TieringJob(on)
    for number in range(count):
        await commit(on, batch(count=5))
        await tiering.begin()
        assert await tiering.tier(eligible(), 100 + number)
        await tiering.claims.release(tiering.claim_id)


async def test_segments_take_the_place_of_others_all_at_once(coordinator):
    await tiered_river(coordinator)
    await commit(coordinator, batch(count=5))
    job = Job(coordinator, JOB)
    await job.hold()
    old = await job.segments()
    swaps = [await job.begin_try(old[:2], 1, size=30), await job.begin_try(old[2:], 2, size=20)]
    assert [each.segment_id for each in await job.segments()] == [e.segment_id for e in old]
    state = await job.swap(*swaps)
    assert state == LogState(0, 20, 150, 15)
    assert await check(coordinator, RIVER, 20) == state
    new = await job.segments()
    assert [(e.start_offset, e.end_offset, e.byte_size) for e in new] == [(0, 10, 30), (10, 15, 20)]
    assert {each.custom_metadata for each in new} == {b"compacted 1 10", b"compacted 1 15"}
    assert await job.swap(*swaps) == state, "its answer was lost"
    orphans = await job.facts.orphans(10)
    assert {each.segment_id for each in orphans} == {each.segment_id for each in old}


async def test_a_swap_of_which_one_segment_is_not_as_it_was_changes_nothing(coordinator):
    await tiered_river(coordinator)
    job = Job(coordinator, JOB)
    await job.hold()
    old = await job.segments()
    swaps = [await job.begin_try(old[:1], 1), await job.begin_try(old[1:], 2)]
    await coordinator.expire(RIVER, older_than_ms=-1, most_bytes=200, most_runs=10)
    with pytest.raises(TryEnded, match="removed or compacted"):
        await job.swap(*swaps)
    assert [each.segment_id for each in await job.segments()] == [e.segment_id for e in old[1:]]
    assert (await check(coordinator, RIVER, 15)).byte_size == 200
    assert (await job.swap(swaps[1])).byte_size == 10


async def test_a_swap_that_leaves_offsets_out_is_refused(coordinator):
    await tiered_river(coordinator)
    job = Job(coordinator, JOB)
    await job.hold()
    old = await job.segments()
    whole = await job.begin_try(old, 1)
    for wrong in (old[1:], old[:2], [old[0], old[2]]):
        with pytest.raises(TryEnded):
            await job.swap(whole._replace(replaced=tuple(each.segment_id for each in wrong)))
    assert len(await job.segments()) == 3
    await job.swap(whole)


async def test_a_swap_that_names_a_segment_twice_changes_nothing(coordinator):
    await tiered_river(coordinator)
    job = Job(coordinator, JOB)
    await job.hold()
    old = await job.segments()
    one, again = await job.begin_try(old, 1), await job.begin_try(old, 2)
    rest = await job.begin_try(old[1:], 3)
    itself = Swap(old[0].segment_id, (old[0].segment_id,))
    for wrong in ((one, again), (one, one), (one, itself), (itself, one), (itself, rest)):
        with pytest.raises(TryEnded):
            await job.swap(*wrong)
    assert [each.segment_id for each in await job.segments()] == [e.segment_id for e in old]
    assert (await check(coordinator, RIVER, 15)).byte_size == 300
    await job.swap(one)


async def test_one_job_holds_the_claim_until_it_is_silent(coordinator, engine: Engine):
    await tiered_river(coordinator)
    job, other = Job(coordinator, JOB), Job(await engine.connect(), OTHER)
    await job.hold()
    await job.hold()
    with pytest.raises(ClaimHeld, match="job-21"):
        await other.hold()
    swap = await job.begin_try(await job.segments(), 1)
    assert await job.claims.compacted_stands(JOB, swap.segment_id)
    await expire_claim(engine, coordinator)
    await other.hold()
    assert not await job.claims.compacted_stands(JOB, swap.segment_id)
    with pytest.raises(ClaimHeld, match="taken the claim"):
        await job.begin_try(await job.segments(), 2)
    with pytest.raises(ClaimHeld, match="taken the claim"):
        await job.swap(swap)
    with pytest.raises(TryEnded, match="given up"):
        await other.swap(swap)
    assert [each.segment_id for each in await other.facts.orphans(10)] == [swap.segment_id]
    await other.swap(await other.begin_try(await other.segments(), 3))


async def test_a_job_that_ends_gives_up_what_it_did_not_finish(coordinator):
    await tiered_river(coordinator)
    job, other = Job(coordinator, JOB), Job(coordinator, OTHER)
    await job.hold()
    swap = await job.begin_try(await job.segments(), 1)
    await job.claims.release_compaction(JOB)
    assert [each.segment_id for each in await job.facts.orphans(10)] == [swap.segment_id]
    await other.hold()
    assert len(await other.segments()) == 3


async def test_tiering_and_compaction_do_not_end_each_other(coordinator):
    await tiered_river(coordinator, 1)
    await commit(coordinator, batch(count=5))
    tiering, job = TieringJob(coordinator), Job(coordinator, JOB)
    await job.hold()
    swap = await job.begin_try(await job.segments(), 1)
    await tiering.begin()
    planned = await tiering.plan(eligible())
    assert planned is not None
    await job.claims.release_compaction(OTHER)
    assert await job.claims.compacted_stands(JOB, swap.segment_id)
    assert await tiering.tier(eligible(), 2)
    assert (await job.swap(swap)).byte_size == 110
    assert [each.end_offset for each in await job.segments()] == [5, 10]
    await check(coordinator, RIVER, 10)


async def test_an_older_leader_is_refused(coordinator):
    await tiered_river(coordinator)
    job = Job(coordinator, JOB)
    await job.hold()
    old = await job.segments()
    first = await job.begin_try(old, 1, leader_epoch=3)
    await job.begin_try(old, 2, leader_epoch=4)
    with pytest.raises(Deposed):
        await job.swap(first, leader_epoch=3)
    with pytest.raises(Deposed):
        await job.begin_try(old, 3, leader_epoch=3)
    assert (await job.swap(first, leader_epoch=4)).byte_size == 10


async def test_a_deleted_topic_ends_a_pass(coordinator):
    await tiered_river(coordinator)
    job = Job(coordinator, JOB)
    await job.hold()
    swap = await job.begin_try(await job.segments(), 1)
    await coordinator.delete_topics(1, [RIVER.topic_id])
    with pytest.raises(TryEnded, match="deleted"):
        await job.swap(swap)
    assert await job.claims.tiered([RIVER]) == [None]
    assert len(await job.facts.orphans(10)) == 4


async def test_a_broker_that_does_not_know_of_compaction_refuses_the_claim(coordinator):
    job = Job(coordinator, JOB)
    with pytest.raises(StorageFault, match="broker 9 does not know of compaction"):
        await job.claims.claim_compaction(JOB, "job", [BROKER, 9])


@pytest.mark.parametrize("seed", range(4))
async def test_any_row_of_calls_keeps_each_offset_in_one_segment(engine: Engine, seed: int):
    """Two jobs, tiering, commits, retention and deletions of records, in any order."""
    on = await engine.connect()
    await make_river(on)
    random = Random(seed)
    jobs, tiering = [Job(on, JOB), Job(on, OTHER)], TieringJob(on)
    ends = {RIVER: 0, DELTA: 0}
    numbers = iter(range(1, 10_000))
    waiting: list[tuple[LogKey, list[Swap]]] = []
    done = 0
    for _ in range(STEPS):
        key, job = random.choice((RIVER, DELTA)), random.choice(jobs)
        step = random.choice(("commit", "commit", "tier", "tier", "try", "try", "swap", "swap",
                              "shorten", "hold", "release"))  # fmt: skip
        with suppress(ClaimHeld, TryEnded):
            if step == "commit":
                made = batch(key, random.randint(1, 5), size=random.randint(10, 99))
                await commit(on, made)
                ends[key] += made.record_count
            elif step == "tier":
                await tiering.begin()
                await tiering.tier(eligible(key), next(numbers))
            elif step == "hold":
                if random.random() < 0.3:
                    await expire_claim(engine, on)
                await job.hold()
            elif step == "release" and random.random() < 0.3:
                await job.claims.release_compaction(job.claim_id)
            elif step == "try":
                old = await job.segments(key)
                cut = random.randint(0, len(old))
                parts = [each for each in (old[:cut], old[cut:]) if each]
                size = random.randint(1, 300)
                swaps = [await job.begin_try(each, next(numbers), size=size) for each in parts]
                waiting.append((key, swaps))
            elif step == "swap" and waiting:
                of, swaps = random.choice(waiting)
                await job.swap(*swaps, key=of)
                done += 1
            elif step == "shorten":
                if random.random() < 0.5:
                    await on.delete_before([(key, random.randint(0, ends[key]))])
                else:
                    most = random.randint(100, 900)
                    await on.expire(key, older_than_ms=-1, most_bytes=most, most_runs=3)
        for each, end in ends.items():
            await check(on, each, end)
    assert done
    for key in ends:
        while (await on.expire(key, older_than_ms=-1, most_bytes=-1, most_runs=1000))[1]:
            pass
        (held,) = await jobs[0].claims.tiered([key])
        assert held is not None
        runs = 0
        if isinstance(on, Front):
            runs = await on.call(Lane.READ, lambda tables, key=key: _run_bytes(tables, key))
        finished = [each.byte_size for each in held.segments if each.is_finished]
        assert held.state.byte_size == sum(finished) + runs
        assert all(each.state is not SegmentState.DELETE_SEGMENT_FINISHED for each in held.segments)


def _run_bytes(tables, key: LogKey) -> int:
    query = "SELECT sum(byte_size) FROM runs WHERE topic_id = ? AND partition = ?"
    return int(tables.rows(query, key)[0][0] or 0)


async def expire_claim(engine: Engine, on: Coordinator) -> None:
    """The job that holds the claim is silent for its lease."""
    if engine.name == "sqlite":
        engine.advance(LEASE_MS + 1)
        return
    assert isinstance(on, Front)
    await on.call(
        Lane.UPKEEP,
        lambda tables: tables.do("UPDATE compaction_claims SET expires_ms = 0"),  # type: ignore[attr-defined]
    )
