"""Snapshots of producers are bounded by the segments, whatever a log goes through."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.log.support import NOW_MS, append, batch, marker, new_log, reopen, sync

from anabranch.core.log.log import Log
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.log.producer_replay import state_at
from anabranch.core.log.producers import ProducerStates
from anabranch.core.log.segment import SNAPSHOT, offset_of
from anabranch.core.log.side_files import STRAYS_KEPT

ACTS = ("send", "send", "send", "stop", "stop", "crash", "roll", "cut", "retain", "begin", "end")


def snapshots(log: Log) -> list[int]:
    found = (offset_of(name, SNAPSHOT) for name in log.files.list(log.folder))
    return sorted(offset for offset in found if offset >= 0)


def begins(log: Log) -> set[int]:
    return {segment.base_offset for segment in log.segments}


def known(states: ProducerStates) -> list[tuple[int, int, int]]:
    return sorted(
        (each.producer_id, each.last_sequence, each.transaction_first_offset) for each in states
    )


def send(log: Log, producer_id: int, *, transactional: bool = False) -> None:
    sequence = log.producers.next_sequence(producer_id, 0)
    records = batch(
        1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=transactional,
    )
    append(log, records)


def test_a_month_of_clean_restarts_leaves_few_snapshots_beside_those_of_segments() -> None:
    log = new_log()
    for number in range(60):
        send(log, 7)
        if number in (20, 40):
            log.roll(NOW_MS)
        log = reopen(log, clean=True)
    assert len(log.segments) == 3
    kept = set(snapshots(log))
    assert kept >= {*begins(log), log.end_offset} - {0}
    assert len(kept - begins(log)) <= STRAYS_KEPT


@pytest.mark.parametrize("clean", [False, True])
def test_the_first_batch_after_a_start_costs_no_snapshot(clean: bool) -> None:
    """A broker that starts is sent batches for thousands of logs at once."""
    log = new_log()
    send(log, 7)
    log = reopen(log, clean=clean)
    assert isinstance(log.files, MemoryFiles)
    before = [path for path in log.files.contents if path.endswith(SNAPSHOT)]
    for path in before:
        log.files.remove(path)
    send(log, 7)
    assert not snapshots(log)


@pytest.mark.parametrize("seed", range(12))
def test_what_a_log_goes_through_leaves_no_stray_and_takes_no_snapshot_away(seed: int) -> None:
    """Producers are as without any snapshot, and so few files are there after each opening."""
    random, log, now_ms = Random(seed), new_log(retention_bytes=900), NOW_MS
    for _ in range(60):
        act = random.choice(ACTS)
        if act == "send":
            send(log, random.choice((7, 8)))
        elif act == "begin" and not log.producers.open_transactions:
            send(log, 9, transactional=True)
        elif act == "end" and log.producers.open_transactions:
            ended = marker(9, committed=random.random() < 0.5)
            log.append_as_leader(ended, leader_epoch=0, now_ms=NOW_MS, client=False)
        elif act == "roll" and log.active is not None:
            log.roll(now_ms)
        elif act == "cut" and log.end_offset > log.start_offset:
            log.truncate_to(random.randint(log.start_offset, log.end_offset))
        elif act == "retain" and not log.producers.open_transactions:
            log.apply_retention(now_ms, log.end_offset)
        elif act in ("stop", "crash"):
            if random.random() < 0.5:
                sync(log)
            before = known(log.producers)
            log = reopen(log, clean=act == "stop", log_start_offset=log.start_offset)
            assert len(set(snapshots(log)) - begins(log)) <= STRAYS_KEPT
            assert known(log.producers) == before
            assert known(state_at(log, log.end_offset)) == before
