"""What every coordinator must do: the same tests for each engine."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import pytest
from coordinator_kit import (
    BROKER,
    CLUSTER,
    DELTA,
    EPOCH,
    LEASE_MS,
    RIVER,
    TOPICS,
    Engine,
    batch,
    commit,
    make_river,
    placed,
    prepare,
)

from anabranch.core.diskless.commit import Producer, ProducerKey, Written
from anabranch.core.diskless.contents import Contents, HeldLog, HeldObject
from anabranch.core.diskless.coordinator import Coordinator, Deposed
from anabranch.core.diskless.rows import (
    VERDICTS_KEPT_MS,
    Batch,
    Change,
    CommitState,
    Committed,
    Found,
    LogKey,
    LogState,
    NewLogs,
    Run,
    Verdict,
    Wanted,
)
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.stores.coordinator import front, postgres, sqlite

NOWHERE = LogKey(TOPICS[3], 0)


def offsets(answer: Committed) -> list[int]:
    assert answer.state is CommitState.COMMITTED, answer
    return [verdict.base_offset for verdict in answer.verdicts]


async def runs_of(on: Coordinator, key: LogKey = RIVER, offset: int = 0, size: int = 1 << 30):
    (found,) = await on.find([Wanted(key, offset, size)])
    return [(run.base_offset, run.end_offset) for run in found.runs]


async def until_no_garbage(on: Coordinator) -> list[str]:
    """Steps until nothing is left to mark; the objects that wait, which are then deleted."""
    gone = []
    while await on.mark_expired(2):
        pass
    while waiting := await on.to_delete(0, 2):
        gone += [key for _, key in waiting]
        await on.deleted([object_id for object_id, _ in waiting])
    return gone


# Whether it is an older copy.


async def test_what_was_committed_is_told_from_what_never_was(
    coordinator: Coordinator, engine: Engine
) -> None:
    done = await prepare(coordinator)
    await coordinator.commit(placed(done, batch()))
    unused = await prepare(coordinator)
    nowhere = await coordinator.commit(placed(unused, batch(NOWHERE)))
    assert nowhere.state is CommitState.COMMITTED
    refused, pending = await prepare(coordinator), await prepare(coordinator)
    assert await coordinator.last_id() == pending.object_id
    await coordinator.refuse([refused.object_id])
    beyond = pending.object_id + 100
    asked = [done[0], unused[0], refused[0], pending[0], beyond]
    assert await coordinator.uncommitted(asked) == [refused[0], pending[0], beyond]
    await coordinator.delete_topics(1, [RIVER.topic_id])
    engine.advance(VERDICTS_KEPT_MS)
    assert len(await until_no_garbage(coordinator)) == 4
    assert await coordinator.uncommitted([done[0], unused[0]]) == []


async def test_the_first_store_that_is_told_stays(engine: Engine) -> None:
    one, two = await engine.connect(), await engine.connect()
    assert await one.store("") == ""
    assert await one.store("here") == "here"
    assert [await two.store("there"), await two.store("")] == ["here", "here"]


# The active controller.


async def test_topics_are_listed_by_id_with_their_partitions(coordinator: Coordinator) -> None:
    await coordinator.create_logs(
        1, [NewLogs(TOPICS[2], "delta", 0, 3), NewLogs(TOPICS[1], "lake", 0, 1)]
    )
    assert await coordinator.topics(ZERO_TOPIC_ID, 2) == [(TOPICS[0], 2), (TOPICS[1], 1)]
    assert await coordinator.topics(TOPICS[1], 2) == [(TOPICS[2], 3)]
    assert await coordinator.topics(TOPICS[2], 2) == []


async def test_rows_are_made_once_and_what_is_there_stays(coordinator: Coordinator) -> None:
    await commit(coordinator, batch())
    await coordinator.create_logs(1, [NewLogs(TOPICS[0], "river", 0, 3)])
    assert await coordinator.topics(ZERO_TOPIC_ID, 9) == [(TOPICS[0], 3)]
    assert await coordinator.states([RIVER, LogKey(TOPICS[0], 2)]) == [
        LogState(0, 1, 100),
        LogState(0, 0),
    ]


async def test_rows_that_are_missing_between_others_are_made(engine: Engine) -> None:
    """A restore by an earlier version made rows only for partitions that had records."""
    on = await engine.make_empty()
    keys = [LogKey(TOPICS[0], partition) for partition in range(6)]
    logs = [HeldLog(keys[each], "river", LogState(0, 7)) for each in (0, 3, 5)]
    await on.load(Contents(logs, [], [], [], 0))
    await on.take_control(1)
    await on.create_logs(1, [NewLogs(TOPICS[0], "river", 3, 6)])
    states = await on.states(keys)
    assert [state and state.high_watermark for state in states] == [7, 0, 0, 7, 0, 7]


async def test_a_deleted_topic_is_gone_for_good(coordinator: Coordinator) -> None:
    await commit(coordinator, batch())
    for _ in range(2):
        await coordinator.delete_topics(1, [TOPICS[0], TOPICS[3]])
    await coordinator.create_logs(
        1, [NewLogs(TOPICS[0], "river", 0, 2), NewLogs(TOPICS[3], "never there", 0, 1)]
    )
    assert await coordinator.topics(ZERO_TOPIC_ID, 9) == []
    assert await coordinator.states([RIVER]) == [None]
    assert await coordinator.find([Wanted(RIVER, 0, 1)]) == [Found(RIVER, None)]
    assert await coordinator.by_time(RIVER, 0) is None
    assert await coordinator.newest(RIVER) is None
    assert (await commit(coordinator, batch())).verdicts == (
        Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    )


async def test_an_older_controller_is_deposed(engine: Engine) -> None:
    old, new = await engine.connect(), await engine.connect()
    await old.take_control(3)
    await new.take_control(4)
    await new.take_control(4)
    for call in (
        old.take_control(3),
        old.create_logs(3, [NewLogs(TOPICS[0], "river", 0, 1)]),
        old.delete_topics(3, [TOPICS[0]]),
    ):
        with pytest.raises(Deposed, match="3"):
            await call
    await new.create_logs(4, [NewLogs(TOPICS[0], "river", 0, 1)])
    assert await new.topics(ZERO_TOPIC_ID, 9) == [(TOPICS[0], 1)]


# Writing.


async def test_offsets_follow_one_another_across_objects(coordinator: Coordinator) -> None:
    answer = await commit(coordinator, batch(count=2), batch(DELTA), batch(NOWHERE), batch())
    assert offsets(answer) == [0, 0, -1, 2]
    assert answer.verdicts[2].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert offsets(await commit(coordinator, batch(), batch())) == [3, 4]
    assert await coordinator.states([RIVER, NOWHERE, DELTA]) == [
        LogState(0, 5, 400),
        None,
        LogState(0, 1, 100),
    ]


async def test_duplicates_get_the_offset_of_the_first(engine: Engine) -> None:
    one, two = await engine.connect(), await engine.connect()
    await make_river(one)
    await two.register(2, 1)
    sent = [batch(producer=4, sequence=number) for number in range(5)]
    assert offsets(await commit(one, batch(), *sent)) == [0, 1, 2, 3, 4, 5]
    prepared = await prepare(two, broker=2, epoch=1)
    later = batch(producer=4, sequence=7)
    again = await two.commit(placed(prepared, *sent, later, broker=2, epoch=1))
    assert again.verdicts == (
        *(Verdict(ErrorCode.NONE, 1 + number, 0, True) for number in range(5)),
        Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, expected_sequence=5),
    )
    assert await one.states([RIVER]) == [LogState(0, 6, 600)]
    assert offsets(await commit(one, batch(producer=4, sequence=5))) == [6]


async def test_a_producer_is_forgotten_when_it_has_been_silent(
    engine: Engine, coordinator: Coordinator
) -> None:
    await commit(coordinator, batch(producer=4, sequence=0), batch(producer=5, sequence=0))
    engine.advance(5000)
    await commit(coordinator, batch(producer=5, sequence=1))
    assert await coordinator.forget_producers(5000, 9) == 1
    assert await coordinator.forget_producers(5000, 9) == 0
    answer = await commit(coordinator, batch(producer=4, sequence=1), batch(producer=5, sequence=2))
    assert [each.code for each in answer.verdicts] == [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.NONE,
    ]


async def waited(on: Coordinator, *batches: Batch) -> list[ErrorCode]:
    """The verdicts of batches whose broker has waited for what comes before."""
    commit = placed(await prepare(on), *batches)
    answer = await on.commit(commit._replace(waited_for=frozenset(range(len(batches)))))
    return [each.code for each in answer.verdicts]


async def test_a_forgotten_producer_goes_on_once_its_broker_has_waited(
    engine: Engine, coordinator: Coordinator
) -> None:
    await commit(
        coordinator, *(batch(producer=each, sequence=0) for each in (6, 4, 5)), batch(DELTA)
    )
    engine.advance(5000)
    await commit(coordinator, batch(producer=4, sequence=1))
    assert await coordinator.forget_producers(5000, 9) == 2
    (refused,) = (await commit(coordinator, batch(producer=5, sequence=1))).verdicts
    assert refused == Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    again = await engine.connect()
    taken, gap = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await waited(again, batch(producer=6, sequence=70), batch(producer=6, sequence=71)) == [
        taken,
        taken,
    ]
    assert await waited(
        again,
        batch(producer=6, sequence=73),  # a gap of one that is known
        batch(producer=5, sequence=2**31 - 1),
        batch(producer=5, sequence=0),
        batch(producer=4, sequence=3),  # was not forgotten
        batch(producer=7, sequence=1),  # is younger than all that were
        batch(DELTA, producer=6, sequence=70),  # another partition
        batch(producer=2, sequence=-5),
    ) == [gap, taken, taken, gap, gap, gap, gap]


async def test_of_forgotten_producers_those_go_on_whose_batches_were_waited_for(
    engine: Engine, coordinator: Coordinator
) -> None:
    await commit(coordinator, *(batch(producer=each, sequence=0) for each in (4, 5)))
    engine.advance(5000)
    assert await coordinator.forget_producers(5000, 9) == 2
    both = (batch(producer=each, sequence=70) for each in (4, 5))
    made = placed(await prepare(coordinator), *both)
    answer = await coordinator.commit(made._replace(waited_for=frozenset({0})))
    codes = [each.code for each in answer.verdicts]
    assert codes == [ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


async def test_forgetting_less_than_before_takes_nothing_back(
    engine: Engine, coordinator: Coordinator
) -> None:
    await commit(coordinator, batch(producer=6, sequence=0))
    engine.advance(5000)
    assert await coordinator.forget_producers(5000, 9) == 1
    await commit(coordinator, batch(producer=4, sequence=0))
    engine.advance(5000)
    assert await coordinator.forget_producers(5000, 9) == 1
    assert await waited(coordinator, batch(producer=6, sequence=70)) == [ErrorCode.NONE]


async def test_producers_of_a_deleted_topic_go_on_in_one_of_its_name(
    engine: Engine, coordinator: Coordinator
) -> None:
    await commit(coordinator, batch(DELTA, producer=6, sequence=0), batch(producer=5, sequence=0))
    taken, gap = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for former, made in ((TOPICS[0], TOPICS[1]), (TOPICS[1], TOPICS[2])):  # the second: unused
        await coordinator.delete_topics(1, [former])
        new = [NewLogs(made, "river", 0, 2), NewLogs(TOPICS[3], "lake", 0, 1)]
        await coordinator.create_logs(1, new)
    assert await waited(
        await engine.connect(),
        batch(LogKey(TOPICS[2], 0), producer=6, sequence=70),
        batch(LogKey(TOPICS[2], 1), producer=7, sequence=70),
        batch(LogKey(TOPICS[3], 0), producer=6, sequence=70),
    ) == [taken, gap, gap]


async def test_a_restored_coordinator_has_forgotten_nobody(engine: Engine) -> None:
    """It cannot tell who was; to refuse is safe."""
    empty = await engine.make_empty()
    known = ProducerKey(RIVER, 6), Producer(0, (Written(0, 4, 0),))
    await empty.load(Contents([HeldLog(RIVER, "river", LogState(0, 5))], [], [], [known]))
    await empty.register(BROKER, EPOCH)
    sent = batch(producer=5, sequence=7), batch(producer=6, sequence=5)
    assert await waited(empty, *sent) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE]
    await empty.close()


async def test_what_is_closed_is_closed_again_at_once(coordinator: Coordinator) -> None:
    await coordinator.close()
    async with asyncio.timeout(5):
        await coordinator.close()


async def test_names_of_objects_are_unlike_and_name_the_cluster(coordinator: Coordinator) -> None:
    prepared = await coordinator.prepare(BROKER, EPOCH, 100, LEASE_MS)
    assert len({each.object_id for each in prepared}) == 100
    assert len({each.object_key.split("/")[2] for each in prepared}) > 50
    assert all(each.object_key.startswith(f"{CLUSTER}/wal/") for each in prepared)
    assert {each.lease_ms for each in prepared} == {LEASE_MS}


async def test_an_older_incarnation_of_a_broker_neither_prepares_nor_commits(
    engine: Engine, coordinator: Coordinator
) -> None:
    prepared = await prepare(coordinator)
    again = await engine.connect()
    await again.register(BROKER, EPOCH + 1)
    with pytest.raises(Deposed, match="broker 1"):
        await coordinator.register(BROKER, EPOCH)
    with pytest.raises(Deposed, match="broker 1"):
        await prepare(coordinator)
    with pytest.raises(Deposed, match="broker 9"):
        await prepare(coordinator, broker=9)
    answer = await coordinator.commit(placed(prepared, batch()))
    assert (answer.state, answer.verdicts) == (CommitState.REFUSED, ())
    assert answer.why
    assert (await coordinator.outcome(prepared.object_key)).state is CommitState.REFUSED
    assert await coordinator.states([RIVER]) == [LogState(0, 0)]
    assert offsets(
        await again.commit(placed(await prepare(again, epoch=EPOCH + 1), batch(), epoch=EPOCH + 1))
    ) == [0]


async def test_nothing_is_committed_after_its_lease(
    engine: Engine, coordinator: Coordinator
) -> None:
    early, late = await prepare(coordinator), await prepare(coordinator)
    engine.advance(LEASE_MS - 1000)
    assert offsets(await coordinator.commit(placed(early, batch()))) == [0]
    engine.advance(1000)
    answer = await coordinator.commit(placed(late, batch()))
    assert (answer.state, answer.why) == (CommitState.REFUSED, "its lease is over")
    assert await coordinator.states([RIVER]) == [LogState(0, 1, 100)]


async def test_the_outcome_of_a_commit_is_told_exactly(
    engine: Engine, coordinator: Coordinator
) -> None:
    prepared = await prepare(coordinator)
    assert await coordinator.outcome(prepared.object_key) == Committed(CommitState.PENDING)
    answer = await coordinator.commit(
        placed(
            prepared,
            batch(producer=4, sequence=0),
            batch(producer=4, sequence=0),
            batch(producer=4, sequence=5),
            batch(NOWHERE),
        )
    )
    other = await engine.connect()
    assert await other.outcome(prepared.object_key) == answer
    assert len(answer.verdicts) == 4
    assert await other.commit(placed(prepared, batch())) == answer, "never committed again"
    assert await coordinator.states([RIVER]) == [LogState(0, 1, 100)]
    engine.advance(VERDICTS_KEPT_MS)
    while await coordinator.mark_expired(9):
        pass
    forgotten = await coordinator.outcome(prepared.object_key)
    assert (forgotten.state, forgotten.verdicts) == (CommitState.COMMITTED, ())
    assert forgotten.why


async def test_who_asks_about_an_expired_object_refuses_it_for_good(
    engine: Engine, coordinator: Coordinator
) -> None:
    prepared = await prepare(coordinator)
    engine.advance(LEASE_MS)
    assert (await coordinator.outcome(prepared.object_key)).state is CommitState.REFUSED
    engine.advance(-LEASE_MS)  # as if the clock had been set back
    assert (await coordinator.outcome(prepared.object_key)).state is CommitState.REFUSED
    answer = await coordinator.commit(placed(prepared, batch()))
    assert answer.state is CommitState.REFUSED


async def test_a_refused_object_stays_refused_and_a_committed_one_committed(
    coordinator: Coordinator,
) -> None:
    done, failed = await prepare(coordinator), await prepare(coordinator)
    await coordinator.commit(placed(done, batch()))
    await coordinator.refuse([done.object_id, failed.object_id, 12345])
    assert (await coordinator.outcome(done.object_key)).state is CommitState.COMMITTED
    assert (await coordinator.outcome(failed.object_key)).state is CommitState.REFUSED
    assert (await coordinator.commit(placed(failed, batch()))).state is CommitState.REFUSED
    assert (await coordinator.outcome("no/such/object")).state is CommitState.REFUSED


async def test_commits_through_two_connections_interleave_without_hole_or_repeat(
    engine: Engine,
) -> None:
    both = [await engine.connect() for _ in range(2)]
    await make_river(both[0])
    await both[1].register(2, 1)

    async def write(on: Coordinator, broker: int, epoch: int) -> list[tuple[int, int]]:
        got = []
        keys = (RIVER, DELTA) if broker == 1 else (DELTA, RIVER)
        for _ in range(20):
            prepared = await prepare(on, broker=broker, epoch=epoch)
            wanted = placed(prepared, *map(batch, keys), broker=broker, epoch=epoch)
            answer = await on.commit(wanted)
            got += [(key.partition, at) for key, at in zip(keys, offsets(answer), strict=True)]
        return got

    got = await asyncio.gather(write(both[0], BROKER, EPOCH), write(both[1], 2, 1))
    assert sorted(got[0] + got[1]) == [(key, at) for key in range(2) for at in range(40)]
    assert await runs_of(both[1]) == [(at, at + 1) for at in range(40)]


async def test_many_partitions_in_one_object(coordinator: Coordinator) -> None:
    await coordinator.create_logs(1, [NewLogs(TOPICS[1], "wide", 0, 1500)])
    keys = [LogKey(TOPICS[1], number) for number in reversed(range(1500))]
    answer = await commit(coordinator, *map(batch, keys))
    assert offsets(answer) == [0] * 1500
    assert await coordinator.states(keys) == [LogState(0, 1, 100)] * 1500
    found = await coordinator.find([Wanted(key, 0, 1) for key in keys])
    assert [each.key for each in found if len(each.runs) == 1] == keys


# Reading.


async def test_runs_are_found_within_a_budget_of_bytes_and_at_least_one(
    coordinator: Coordinator,
) -> None:
    for _ in range(4):
        await commit(coordinator, batch(count=2), batch(DELTA))
    assert await runs_of(coordinator) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert await runs_of(coordinator, offset=3, size=200) == [(2, 4), (4, 6)]
    assert await runs_of(coordinator, offset=4, size=0) == [(4, 6)]
    assert await runs_of(coordinator, offset=7) == [(6, 8)]
    assert await runs_of(coordinator, offset=8) == []
    found = await coordinator.find(
        [Wanted(RIVER, 6, 1), Wanted(NOWHERE, 0, 1), Wanted(DELTA, 9, 1), Wanted(RIVER, 0, 1)]
    )
    assert [(each.key, each.state, len(each.runs)) for each in found] == [
        (RIVER, LogState(0, 8, 400), 1),
        (NOWHERE, None, 0),
        (DELTA, LogState(0, 4, 400), 0),
        (RIVER, LogState(0, 8, 400), 1),
    ]


async def test_what_lies_behind_lost_offsets_is_found(engine: Engine) -> None:
    """A restore may leave holes, before records and between them."""
    on = await engine.make_empty()
    runs = [Run(RIVER, at, at + 2, 1, "o", at, 100, 1000) for at in (2, 4, 10, 12, 20)]
    held = HeldObject(1, "o", 900, BROKER, EPOCH, len(runs))
    await on.load(Contents([HeldLog(RIVER, "river", LogState(0, 22, 500))], [held], runs, [], 1))
    for offset in range(22):
        behind = [run[1:3] for run in runs if run.end_offset > offset]
        assert await runs_of(on, offset=offset) == behind
        assert await runs_of(on, offset=offset, size=0) == behind[:1]


async def test_a_run_says_where_its_bytes_are(coordinator: Coordinator) -> None:
    prepared = await prepare(coordinator)
    late = batch(timestamp=2000)._replace(timestamp_type=1)
    await coordinator.commit(placed(prepared, batch(DELTA, size=30), batch(), late))
    (found,) = await coordinator.find([Wanted(RIVER, 1, 1)])
    (run,) = found.runs
    assert run[1:] == (1, 2, prepared.object_id, prepared.object_key, 130, 100, 2000, 1)


async def test_rows_of_one_answer_are_bounded(coordinator: Coordinator) -> None:
    apart = [each for _ in range(600) for each in (batch(size=1), batch(DELTA, size=1))]
    await commit(coordinator, *apart)
    found = await runs_of(coordinator, offset=10)
    assert found == [(at, at + 1) for at in range(10, 510)]


@pytest.mark.parametrize("step", [1, 2, 10_000])
async def test_runs_are_found_by_time(
    coordinator: Coordinator, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "MOST_RUNS_WALKED", step)
    for timestamp in (1000, 3000, 2000, 3000):
        await commit(coordinator, batch(timestamp=timestamp))
    first = {time: await coordinator.by_time(RIVER, time) for time in (0, 1000, 1001, 3001)}
    assert {time: run and run.base_offset for time, run in first.items()} == {
        0: 0,
        1000: 0,
        1001: 1,
        3001: None,
    }
    later = [await coordinator.by_time(RIVER, 2001, first) for first in range(5)]
    assert [run and run.base_offset for run in later] == [1, 1, 3, 3, None]
    newest = await coordinator.newest(RIVER)
    assert newest is not None and newest.base_offset == 1
    await coordinator.delete_before([(RIVER, 2)])
    newest = await coordinator.newest(RIVER)
    assert newest is not None and newest.base_offset == 3
    assert await coordinator.newest(DELTA) is None


# Shortening.


async def test_a_start_is_raised_within_the_log_and_never_back(coordinator: Coordinator) -> None:
    for _ in range(3):
        await commit(coordinator, batch(count=2))
    assert await coordinator.delete_before([(RIVER, 3), (NOWHERE, 1), (DELTA, 5)]) == [
        LogState(3, 6, 200),
        None,
        LogState(0, 0),
    ]
    assert await runs_of(coordinator, offset=3) == [(2, 4), (4, 6)]
    assert await runs_of(coordinator, offset=2) == []
    assert await coordinator.delete_before([(RIVER, 1)]) == [LogState(3, 6, 200)]
    assert await coordinator.delete_before([(RIVER, 99)]) == [LogState(6, 6)]
    assert (await commit(coordinator, batch())).verdicts == (Verdict(ErrorCode.NONE, 6, 6),)


async def test_retention_by_time_stops_at_the_first_run_to_be_kept(
    coordinator: Coordinator,
) -> None:
    for timestamp in (1000, 2000, 5000, 1000):
        await commit(coordinator, batch(timestamp=timestamp))

    async def expire(older_than_ms: int, most_runs: int = 9) -> tuple[LogState | None, int]:
        return await coordinator.expire(
            RIVER, older_than_ms=older_than_ms, most_bytes=-1, most_runs=most_runs
        )

    assert await expire(1000) == (LogState(0, 4, 400), 0)
    assert await expire(2001, most_runs=1) == (LogState(1, 4, 300), 1)
    assert await expire(2001) == (LogState(2, 4, 200), 1)
    assert await expire(5001) == (LogState(4, 4), 2)
    assert await expire(-1) == (LogState(4, 4), 0)


async def test_retention_by_time_keeps_records_without_a_timestamp_from_their_commit_on(
    coordinator: Coordinator,
) -> None:
    """A producer may leave them out; nothing may go before it was kept for the time."""
    for _ in range(2):
        await commit(coordinator, batch(timestamp=-1))
    bounds = {"most_bytes": -1, "most_runs": 9}
    early_ms, late_ms = 1_000_000_000_000, 1 << 50
    state, dropped = await coordinator.expire(RIVER, older_than_ms=early_ms, **bounds)
    assert (state, dropped) == (LogState(0, 2, 200), 0)
    assert await coordinator.expire(RIVER, older_than_ms=late_ms, **bounds) == (LogState(2, 2), 2)


async def test_retention_by_size_keeps_at_least_that_much(coordinator: Coordinator) -> None:
    for _ in range(4):
        await commit(coordinator, batch())
    kept = {"older_than_ms": -1, "most_runs": 9}
    assert await coordinator.expire(RIVER, most_bytes=301, **kept) == (LogState(0, 4, 400), 0)
    assert await coordinator.expire(RIVER, most_bytes=250, **kept) == (LogState(1, 4, 300), 1)
    assert await coordinator.expire(RIVER, most_bytes=-1, **kept) == (LogState(1, 4, 300), 0)
    assert await coordinator.expire(RIVER, most_bytes=0, **kept) == (LogState(4, 4), 3)
    assert await coordinator.expire(NOWHERE, most_bytes=0, **kept) == (None, 0)


# Garbage.


async def test_an_object_is_garbage_when_its_last_run_is_gone_and_after_grace(
    engine: Engine, coordinator: Coordinator
) -> None:
    both, one = await prepare(coordinator), await prepare(coordinator)
    await coordinator.commit(placed(both, batch(), batch(DELTA)))
    await coordinator.commit(placed(one, batch()))
    await coordinator.delete_before([(RIVER, 1)])
    assert await coordinator.to_delete(0, 9) == []
    await coordinator.delete_before([(DELTA, 1)])
    assert await coordinator.to_delete(60_000, 9) == []
    engine.advance(60_000)
    assert await coordinator.to_delete(60_000, 9) == [(both.object_id, both.object_key)]
    await coordinator.deleted([both.object_id, one.object_id])
    assert await coordinator.to_delete(0, 9) == []
    assert (await coordinator.outcome(both.object_key)).state is CommitState.COMMITTED
    keys = [both.object_key, one.object_key, "elsewhere"]
    assert await coordinator.unknown(keys) == [both.object_key, "elsewhere"]


async def test_after_expiry_and_deletion_no_object_stays(
    engine: Engine, coordinator: Coordinator
) -> None:
    orphan, failed, empty, full = [await prepare(coordinator) for _ in range(4)]
    await coordinator.refuse([failed.object_id])
    await coordinator.commit(placed(empty, batch(NOWHERE)))
    await coordinator.commit(placed(full, *[batch(), batch(DELTA)] * 4))
    assert sorted(await until_no_garbage(coordinator)) == sorted(
        [failed.object_key, empty.object_key]
    )
    engine.advance(LEASE_MS)
    assert await until_no_garbage(coordinator) == [orphan.object_key]
    await coordinator.delete_topics(1, [TOPICS[0]])
    assert await until_no_garbage(coordinator) == [full.object_key]
    keys = [each.object_key for each in (orphan, failed, empty, full)]
    assert await coordinator.unknown(keys) == keys
    engine.advance(VERDICTS_KEPT_MS)
    assert await coordinator.mark_expired(9) == 2, "outcomes of those that were committed"
    assert await coordinator.mark_expired(9) == 0


async def test_what_has_waited_for_longest_is_deleted_first(
    engine: Engine, coordinator: Coordinator
) -> None:
    objects = [await prepare(coordinator) for _ in range(4)]
    for number in (2, 0, 3, 1):
        await coordinator.refuse([objects[number].object_id])
        engine.advance(1000)
    first = [(objects[number].object_id, objects[number].object_key) for number in (2, 0, 3)]
    assert await coordinator.to_delete(0, 3) == first
    await coordinator.deleted([number for number, _ in first])
    assert await coordinator.to_delete(0, 3) == [(objects[1].object_id, objects[1].object_key)]


async def test_the_lease_that_ended_first_is_marked_first(
    engine: Engine, coordinator: Coordinator
) -> None:
    (late,) = await coordinator.prepare(BROKER, EPOCH, 1, 3 * LEASE_MS)
    (early,) = await coordinator.prepare(BROKER, EPOCH, 1, LEASE_MS)
    engine.advance(3 * LEASE_MS)
    for each in (early, late):
        assert await coordinator.mark_expired(1) == 1
        engine.advance(1000)
        waiting = await coordinator.to_delete(0, 9)
        assert waiting[-1] == (each.object_id, each.object_key)


async def test_a_step_counts_runs_and_producers_of_deleted_topics(
    coordinator: Coordinator,
) -> None:
    """Each is a row that goes: a step that deletes many producers is not a small one."""
    batches = [batch(producer=each, sequence=0) for each in range(3)]
    await coordinator.commit(placed(await prepare(coordinator), *batches, batch(DELTA)))
    runs = sum(
        len(each.runs)
        for each in await coordinator.find([Wanted(RIVER, 0, 1 << 20), Wanted(DELTA, 0, 1 << 20)])
    )
    await coordinator.delete_topics(1, [TOPICS[0]])
    steps = []
    while steps[-1:] != [0]:
        steps.append(await coordinator.mark_expired(2))
    assert sum(steps) == runs + 3 and max(steps) == 2


# Changes.


async def test_changes_of_another_connection_arrive(engine: Engine) -> None:
    one, two = await engine.connect(), await engine.connect()
    await make_river(one)
    async with asyncio.timeout(10), aclosing(two.changes()) as changes:
        assert await anext(changes) == []
        prepared = await prepare(one)
        await one.commit(placed(prepared, batch(), batch(DELTA), batch()))
        told: dict[LogKey, Change] = {}
        while RIVER not in told or DELTA not in told:
            told |= {each.key: each for each in await anext(changes)}
        assert told[DELTA].state == LogState(0, 1, 100)
        found = await one.find([Wanted(RIVER, 0, 1 << 20)])
        assert (told[RIVER].state, told[RIVER].runs) == found[0][1:]
        await one.delete_before([(RIVER, 1)])
        assert await anext(changes) == [Change(RIVER, LogState(1, 2, 100))]
        await one.expire(DELTA, older_than_ms=5000, most_bytes=-1, most_runs=9)
        assert await anext(changes) == [Change(DELTA, LogState(1, 1))]
        await one.delete_topics(1, [TOPICS[0]])
        assert sorted(await anext(changes)) == [Change(RIVER, None), Change(DELTA, None)]
        await one.create_logs(1, [NewLogs(TOPICS[1], "lake", 0, 1)])
        assert await anext(changes) == [Change(LogKey(TOPICS[1], 0), LogState(0, 0))]


async def test_a_wide_commit_is_told_whole(engine: Engine) -> None:
    one, two = await engine.connect(), await engine.connect()
    await make_river(one, 1000)
    keys = [LogKey(TOPICS[0], number) for number in range(1000)]
    async with asyncio.timeout(20), aclosing(two.changes()) as changes:
        assert await anext(changes) == []
        await commit(one, *map(batch, keys))
        told: list[Change] = []
        while len(told) < len(keys):
            told += await anext(changes)
    assert sorted(change.key for change in told) == keys
    assert all(len(change.runs) == 1 for change in told)


async def test_a_lost_coordinator_s_rows_are_loaded_and_go_on(
    coordinator: Coordinator, engine: Engine
):
    written = batch(producer=5, sequence=0, count=3)
    await commit(coordinator, written, batch(DELTA, 2))
    states = await coordinator.states([RIVER, DELTA])
    found = await coordinator.find([Wanted(RIVER, 0, 1 << 30), Wanted(DELTA, 0, 1 << 30)])
    runs = [run for each in found for run in each.runs]
    objects = [
        HeldObject(run.object_id, run.object_key, 300, BROKER, EPOCH, 2) for run in runs[:1]
    ] + [HeldObject(7, "cluster/wal/00/unused", 9, BROKER, EPOCH, 0)]
    logs = [HeldLog(key, "river", state) for key, state in zip([RIVER, DELTA], states, strict=True)]
    producer = Producer(0, (Written(0, 2, 0),))
    contents = Contents(logs, objects, runs, [(ProducerKey(RIVER, 5), producer)], 40)
    with pytest.raises(StorageFault, match="not empty"):
        await coordinator.load(contents)

    fresh = await engine.make_empty()
    await fresh.load(contents)
    assert await fresh.mark() != await coordinator.mark()
    assert await fresh.states([RIVER, DELTA, NOWHERE]) == [*states, None]
    assert await fresh.find([Wanted(RIVER, 0, 1 << 30), Wanted(DELTA, 0, 1 << 30)]) == found
    assert await fresh.to_delete(0, 9) == [(7, "cluster/wal/00/unused")]
    await make_river(fresh)
    again = await commit(fresh, written)
    assert again.verdicts[0].is_duplicate and offsets(again) == [0]
    assert offsets(await commit(fresh, batch(producer=5, sequence=3, count=1))) == [3]
    assert (await prepare(fresh)).object_id > 40
    with pytest.raises(StorageFault, match="not empty"):
        await fresh.load(contents)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
async def test_rows_are_loaded_however_long_it_takes(
    engine: Engine, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call is given up after a while; a load is not."""
    monkeypatch.setattr(sqlite if engine.name == "sqlite" else postgres, "CALL_TIMEOUT_S", 0.05)
    goes_on = threading.Event()

    def slow(tables: front.Tables) -> str:
        assert goes_on.wait(20)
        return tables.mark()

    assert isinstance(coordinator, front.Front)
    loading = asyncio.create_task(coordinator.call(front.Lane.LOAD, slow))
    await asyncio.wait([loading], timeout=0.2)
    assert not loading.done()
    goes_on.set()
    assert await loading
