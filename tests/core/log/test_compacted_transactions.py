"""What is known of producers does not depend on what compaction took, nor on where recovery begins.

A world is one compacted partition to which producers write in transactions that end either way,
while segments are closed and compacted, time goes by, and the process ends in order or not. A list
says beside the log what was written. Asked after each step: which transactions are open and where
each began; which sequence number each producer may go on with; and what a reader of committed
records finds under each key.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest
from tests.core.log.compacting import committed_values, compact
from tests.core.log.support import NOW_MS, append, marker, new_log, reopen, sync

from anabranch.core.errors import ApiError
from anabranch.core.log.log import Log
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.records import Record, build_batch

SEEDS = 120
STEPS = 70
PRODUCERS = (1, 2, 3)
KEYS = [b"k%d" % index for index in range(12)]
RETENTION_MS = 1_000
SETTINGS = {
    "cleanup_policy": ("compact",),
    "segment_bytes": 600,
    "index_interval_bytes": 100,
    "delete_retention_ms": RETENTION_MS,
    "file_delete_delay_ms": 0,
}


class Written(NamedTuple):
    """A record; `producer_id` -1: of no transaction."""

    offset: int
    key: bytes
    value: bytes
    producer_id: int = -1


class World:
    """The log, and what was written into it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log: Log = new_log(**SETTINGS)
        self.now_ms, self.clean_point, self.count = NOW_MS, 0, 0
        self.committed: dict[bytes, Written] = {}
        self.undecided: dict[int, list[Written]] = {}
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.sequences = dict.fromkeys(PRODUCERS, 0)

    # What happens.

    def write(self) -> None:
        producer = self.random.choice((-1, *PRODUCERS))
        key, value = self.random.choice(KEYS), b"%4d" % self.count + bytes(40)
        self.count += 1
        records = self.batch(producer, key, value)
        written = Written(append(self.log, records, now_ms=self.now_ms), key, value, producer)
        if producer < 0:
            self.count_as_committed([written])
        else:
            self.undecided.setdefault(producer, []).append(written)
            self.sequences[producer] += 1

    def batch(self, producer: int, key: bytes, value: bytes) -> bytearray:
        fields = {}
        if producer >= 0:
            fields = {
                "producer_id": producer,
                "producer_epoch": self.epochs[producer],
                "base_sequence": self.sequences[producer],
                "transactional": True,
            }
        return build_batch([Record(0, self.now_ms, key, value)], **fields)

    def count_as_committed(self, written: list[Written]) -> None:
        for each in written:
            if each.offset > self.committed.get(each.key, each._replace(offset=-1)).offset:
                self.committed[each.key] = each

    def end(self) -> None:
        """Of an open transaction; most markers raise the epoch."""
        if not self.undecided:
            return
        producer, is_committed = self.random.choice([*self.undecided]), self.random.random() < 0.5
        if self.random.random() < 0.8:
            self.epochs[producer] += 1
            self.sequences[producer] = 0
        ends = marker(producer, committed=is_committed, producer_epoch=self.epochs[producer])
        self.log.append_as_leader(ends, leader_epoch=0, now_ms=self.now_ms, client=False)
        written = self.undecided.pop(producer)
        if is_committed:
            self.count_as_committed(written)

    def close(self) -> None:
        if self.log.active is not None and self.log.active.size:
            self.log.roll(self.now_ms)
            sync(self.log)

    def compact(self) -> None:
        """Some passes: one that takes records, one that finds nothing left of a transaction, and
        one when its marker's time is over."""
        for _ in range(self.random.randint(1, 3)):
            self.now_ms += self.random.choice([1, RETENTION_MS])
            self.clean_point = compact(self.log, self.now_ms, self.clean_point)
        self.log.remove_deleted_files(self.now_ms)

    def restart(self) -> None:
        how = {"now_ms": self.now_ms, "clean_point": self.clean_point}
        if self.random.random() < 0.2:  # the checkpoint is lost
            how["recovery_point"] = 0
        self.log = reopen(self.log, clean=self.random.random() < 0.3, **how)

    def step(self) -> None:
        moves = (self.write,) * 7 + (self.end,) * 4 + (self.compact, self.restart)
        self.random.choice((*moves, self.close, self.close))()

    # What is so.

    def check(self) -> None:
        opened = {producer: found[0].offset for producer, found in self.undecided.items()}
        assert self.log.producers.open_transactions == opened
        end = self.log.end_offset
        stable = self.log.last_stable_offset(end)
        assert stable == min(opened.values(), default=end)
        if not opened:
            found = committed_values(self.log, end)
            assert found == {key: each.value for key, each in self.committed.items()}
        for producer in PRODUCERS:
            self.check_next(producer)

    def check_next(self, producer: int) -> None:
        """The log takes what its producer sends next."""
        header = read_header(self.batch(producer, b"k", b""))
        assert self.log.producers.duplicate_of(header) is None
        try:
            self.log.producers.check(header)
        except ApiError as refusal:
            raise AssertionError(f"producer {producer} cannot go on: {refusal}") from refusal


@pytest.mark.parametrize("seed", range(SEEDS))
def test_compaction_changes_nothing_that_recovery_finds(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
        world.check()
