"""R5: what a log knows of its producers after a cut is what it would have known at that place."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.log.support import NOW_MS, batch, marker, new_log, reopen

from anabranch.core.log import producer_replay, side_files
from anabranch.core.log.log import Log
from anabranch.core.log.producers import BATCHES_KEPT, Producer, ProducerStates
from anabranch.core.log.segment import Segment
from anabranch.core.wire.batch import BatchHeader

STEPS = 60
Written = tuple[int, int, int, int, int]
"""Of a batch: producer id, epoch, first and last sequence number, last offset."""


class Writers:
    """Producers that write into a log, and what they wrote."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.log = new_log(index_interval_bytes=random.choice([1, 4096]))
        self.written: list[Written] = []
        self.next: dict[int, tuple[int, int]] = {}

    def write(self) -> None:
        producer_id = self.random.choice([1, 1, 1, 2, 3, 9])
        epoch, sequence = self.next.get(producer_id, (0, 0))
        if self.random.random() < 0.05:
            epoch, sequence = epoch + 1, 0
        count = self.random.randint(1, 3)
        records = batch(
            count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        self.log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
        last = sequence + count - 1
        self.written.append((producer_id, epoch, sequence, last, self.log.end_offset - 1))
        self.next[producer_id] = epoch, last + 1

    def cut(self) -> None:
        depth = self.random.choice([1, 2, 5, 20])
        if len(self.written) <= depth:
            return
        self.log.truncate_to(self.written[-depth - 1][-1] + 1)
        del self.written[-depth:]
        self.next = {who: (epoch, last + 1) for who, epoch, _, last, _ in self.written}

    def roll(self) -> None:
        if self.written and self.log.segments[-1].size:
            self.log.roll(NOW_MS)

    def restart(self) -> None:
        self.log = reopen(self.log, clean=self.random.random() < 0.5)

    def step(self) -> None:
        chosen = self.random.choices(
            [self.write, self.cut, self.roll, self.restart], weights=[80, 10, 5, 5]
        )
        chosen[0]()

    def check(self) -> None:
        """Each producer is known with all batches that it may send again, and no other."""
        assert {each.producer_id for each in self.log.producers} == set(self.next)
        for producer in self.log.producers:
            wrote = [each[1:] for each in self.written if each[0] == producer.producer_id]
            wrote = [each for each in wrote if each[0] == producer.epoch]
            assert facts(producer) == wrote[-BATCHES_KEPT:]


def facts(producer: Producer) -> list[tuple[int, ...]]:
    assert producer.last_timestamp == producer.batches[-1].timestamp
    return [
        (producer.epoch, each.first_sequence, each.last_sequence, each.last_offset)
        for each in producer.batches
    ]


@pytest.mark.parametrize("seed", range(200))
def test_the_batches_of_each_producer_are_known(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        side_files, "SNAPSHOT_EACH_BYTES", Random(seed).choice([1, 300, 1000, 32 << 20])
    )
    writers = Writers(Random(seed))
    for _ in range(STEPS):
        writers.step()
        writers.check()


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("restart", ["no", "killed", "clean"])
def test_a_cut_reads_from_the_last_snapshot_only(
    monkeypatch: pytest.MonkeyPatch, restart: str, transactional: bool
) -> None:
    """A segment has a gigabyte, and everybody waits meanwhile."""
    monkeypatch.setattr(side_files, "SNAPSHOT_EACH_BYTES", 4000)
    log = new_log(index_interval_bytes=500)
    for sequence in range(1000):
        records = batch(
            1,
            producer_id=sequence % 3,
            producer_epoch=0,
            base_sequence=sequence // 3,
            transactional=transactional,
        )
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    if restart != "no":
        log = reopen(log, clean=restart == "clean")
    noted: list[int] = []

    def note(
        log: Log, states: ProducerStates, segment: Segment, at: int, header: BatchHeader
    ) -> None:
        noted.append(header.size_bytes)
        note_in_file(log, states, segment, at, header)

    note_in_file = producer_replay.note_in_file
    monkeypatch.setattr(producer_replay, "note_in_file", note)
    log.truncate_to(990)
    assert sum(noted) <= 4000 + 2 * batch_bytes(transactional)
    assert [each.last_sequence for each in log.producers] == [329, 329, 329]


def batch_bytes(transactional: bool) -> int:
    return len(batch(1, transactional=transactional))


def test_a_cut_knows_what_was_written_in_earlier_segments() -> None:
    log = new_log()

    def write(producer_id: int, *sequences: int) -> None:
        for sequence in sequences:
            records = batch(1, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)

    write(1, 0, 1, 2, 3)
    write(2, 0)
    log.roll(NOW_MS)
    write(2, *range(1, 7))
    log.truncate_to(5)
    assert [len(log.producers.producers[each].batches) for each in (1, 2)] == [4, 1]


def test_an_open_transaction_stays_open() -> None:
    log = new_log()
    for sequence in range(3):
        records = batch(
            1, producer_id=3, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    log.truncate_to(2)
    assert log.producers.open_transactions == {3: 0}


@pytest.mark.parametrize("end_offset", [1, 2, 3, 4, 5])
def test_what_a_marker_ended_is_open_again_when_that_is_cut(end_offset: int) -> None:
    log = new_log()
    for sequence in range(2):
        records = batch(
            1, producer_id=3, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    log.append_as_leader(marker(3, committed=True), leader_epoch=0, now_ms=NOW_MS, client=False)
    for sequence in range(2, 8):
        records = batch(1, producer_id=3, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    assert log.last_stable_offset(9) == 9
    log.truncate_to(end_offset)
    assert log.producers.open_transactions == ({3: 0} if end_offset < 3 else {})


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_that_starts_over_knows_no_producer_also_after_a_restart(clean: bool) -> None:
    """A roll leaves a snapshot where the next segment begins, which may be the log's end."""
    log = new_log()
    records = batch(producer_id=1, producer_epoch=0, base_sequence=0)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.truncate_fully(log.end_offset)
    assert not log.producers
    assert not reopen(log, clean=clean).producers
