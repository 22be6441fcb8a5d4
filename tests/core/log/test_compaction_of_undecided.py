"""R5, R15: compaction goes by markers that are synced, so that a loss of power undoes no decision.

A world is one compacted partition on a disk that forgets. Producers write in transactions and
without, segments are closed, sync rounds cover some of it, compaction runs, the end is cut, the
process ends or the power goes. A list says beside the log what was written. Asked after each loss
of power: every record that the log's own markers leave undecided is there, and the newest committed
record of each key as these markers have it, whatever markers the log had before; and what each
producer wrote last is known, so that it is not taken twice.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tests.core.log.compacting import batches_of, compact
from tests.core.log.support import KEY, NOW_MS, TOPIC_ID, append, marker, new_log, note_clean, sync

from anabranch.core.log import cleanable
from anabranch.core.log.config import LogConfig
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.producers import BATCHES_KEPT
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.records import Record, build_batch, decode_records
from anabranch.sim.disk import SimDisk

SEEDS = 150
STEPS = 90
PRODUCERS = (1, 2, 3)
KEYS = [b"k%d" % index for index in range(4)]
CONFIG = LogConfig(
    segment_bytes=2_000,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    cleanup_policy=("compact",),
    delete_retention_ms=0,
)


def put(log: Log, key: bytes, value: bytes, producer: int = -1, sequence: int = 0) -> int:
    """A record, of a transaction where a producer is named; its offset."""
    records = [Record(0, NOW_MS, key, value)]
    if producer < 0:
        return append(log, build_batch(records))
    mine = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    return append(log, build_batch(records, transactional=True, **mine))


def end(log: Log, producer: int, *, committed: bool) -> None:
    """The transaction of a producer ends."""
    batch = marker(producer, committed=committed)
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, client=False)


def found(log: Log) -> list[tuple[int, bytes]]:
    """(offset, value) of every record."""
    return [
        (record.offset, record.value)
        for batch in batches_of(log)
        if not read_header(batch).is_control
        for record in decode_records(batch)
    ]


def cleanable_upto(log: Log) -> int:
    """Where a pass over the whole log would end."""
    where = {"now_ms": NOW_MS, "high_watermark": log.end_offset, "first_dirty_offset": 0}
    return cleanable.dirt(log, **where).upto


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_that_is_not_synced_decides_nothing(committed):
    """Either record may be the one that counts: the power may take the marker, and another come."""
    log = new_log(cleanup_policy=("compact",))
    put(log, b"k", b"before")
    put(log, b"k", b"of the transaction", producer=7)
    log.roll(NOW_MS)
    sync(log)
    end(log, 7, committed=committed)
    assert cleanable_upto(log) == 0
    compact(log, NOW_MS)
    assert found(log) == [(0, b"before"), (1, b"of the transaction")]
    sync(log)
    compact(log, NOW_MS)
    assert found(log) == [(1, b"of the transaction") if committed else (0, b"before")]


def test_a_round_covers_the_markers_that_were_there_when_it_began():
    log = new_log(cleanup_policy=("compact",))
    put(log, b"k", b"first")
    log.roll(NOW_MS)
    put(log, b"k", b"second", producer=7)
    log.roll(NOW_MS)
    target = log.sync_target()
    end(log, 7, committed=True)
    log.synced(target[0])
    assert cleanable_upto(log) == 1
    sync(log)
    assert cleanable_upto(log) == 2


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_process_that_ended_leaves_what_it_has_synced(is_clean):
    """What was decided is known at once: a quiet log may wait for its next round for days."""
    log = new_log(cleanup_policy=("compact",))
    put(log, b"k", b"of a transaction", producer=7)
    put(log, b"k", b"of another", producer=8)
    log.roll(NOW_MS)
    end(log, 7, committed=True)
    log.roll(NOW_MS)
    sync(log)
    end(log, 8, committed=True)
    files, recovery_point = log.files, log.flushed_offset
    log.close(clean=is_clean)
    if is_clean:
        recovery_point = log.end_offset
    log = Log.open(
        files, log.folder, KEY, TOPIC_ID, log.config,
        now_ms=NOW_MS, recovery_point=recovery_point, clean=is_clean,
    )  # fmt: skip
    assert log.decided_offset == (4 if is_clean else 1)
    sync(log)
    assert log.decided_offset == 4


def test_a_cut_takes_back_what_it_decided():
    log = new_log(cleanup_policy=("compact",))
    put(log, b"k", b"before")
    put(log, b"k", b"of a transaction", producer=7)
    end(log, 7, committed=True)
    log.roll(NOW_MS)
    sync(log)
    assert log.decided_offset == 3
    log.truncate_to(2)
    assert log.decided_offset == 1
    log.truncate_fully(9)
    assert log.decided_offset == 9


def test_a_round_covers_no_marker_that_was_cut_meanwhile():
    log = new_log(cleanup_policy=("compact",))
    put(log, b"k", b"of a transaction", producer=7)
    log.roll(NOW_MS)
    end(log, 7, committed=True)
    target = log.sync_target()
    log.truncate_to(1)
    end(log, 7, committed=False)
    log.synced(target[0])
    assert (log.flushed_offset, log.decided_offset) == (1, 0)


class World:
    """The log, and what was written into it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(self.random)
        self.folder = LogFolder(self.disk, "data")
        self.log = self.folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        self.settle()
        self.written: list[tuple[int, int, bytes, bytes]] = []
        """(offset, producer, key, value) of each record that is in the log, or was."""
        self.ended: list[tuple[int, int, bool]] = []
        """(offset, producer, whether it commits) of each marker."""
        self.sequences: dict[int, int] = {}
        """Offset -> the record's sequence number."""
        self.unsure: set[int] = set()
        """Producers that lost more batches than they may have in flight: of those before, none is sent
        again."""
        self.clean_point = 0
        self.relied_on = 0
        """What was synced when compaction went by it."""

    # What happens.

    def write(self) -> None:
        producer, key = self.random.choice((-1, -1, *PRODUCERS)), self.random.choice(KEYS)
        value = b"%4d" % len(self.written) + bytes(40)
        known = self.log.producers.producers.get(producer)
        sequence = 0 if known is None else known.last_sequence + 1
        offset = put(self.log, key, value, producer, sequence)
        self.written.append((offset, producer, key, value))
        self.sequences[offset] = sequence
        self.unsure.discard(producer)

    def end(self) -> None:
        opened = [*self.log.producers.open_transactions]
        if opened:
            producer, committed = self.random.choice(opened), self.random.random() < 0.6
            self.ended.append((self.log.end_offset, producer, committed))
            end(self.log, producer, committed=committed)

    def roll(self) -> None:
        if self.log.active is not None and self.log.active.size:
            self.log.roll(NOW_MS)

    def sync(self) -> None:
        """A round, while which some are still writing."""
        target = self.log.sync_target()
        if target is None:
            return
        for one in target[1]:
            one.sync()
        for _ in range(self.random.randrange(3)):
            self.random.choice((self.write, self.end))()
        if self.random.random() < 0.1:
            self.cut()
        self.log.synced(target[0])

    def compact(self) -> None:
        self.relied_on = self.log.flushed_offset
        self.clean_point = compact(self.log, NOW_MS, self.clean_point)
        self.folder.checkpoint()
        note_clean(self.folder, KEY, self.clean_point)
        self.log.remove_deleted_files(NOW_MS)

    def cut(self) -> None:
        """Back to another leader's log, which has all that compaction went by."""
        self.log.truncate_to(self.random.randint(self.relied_on, self.log.end_offset))
        self.forget_tail()

    def crash(self) -> None:
        """Memory keeps what was written: nothing of it was lost, and nothing more was synced."""
        if self.random.random() < 0.5:
            self.folder.checkpoint()
        self.open()

    def cut_power(self) -> None:
        if self.random.random() < 0.5:
            self.folder.checkpoint()
        self.disk.cut_power()
        self.open()
        self.forget_tail()
        self.check()

    def settle(self) -> None:
        """The partition is there, whatever comes."""
        self.disk.sync_dir("data")
        self.disk.sync_dir(self.log.folder)

    def open(self) -> None:
        self.folder = LogFolder(self.disk, "data")
        self.log = self.folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)

    def forget_tail(self) -> None:
        upto = self.log.end_offset
        lost = Counter(producer for offset, producer, *_ in self.written if offset >= upto)
        self.unsure.update(each for each, count in lost.items() if count >= BATCHES_KEPT)
        self.written = [each for each in self.written if each[0] < upto]
        self.ended = [each for each in self.ended if each[0] < upto]
        self.clean_point = min(self.clean_point, upto)

    def step(self) -> None:
        moves = (self.write,) * 8 + (self.end,) * 4 + (self.roll, self.sync, self.compact) * 2
        self.random.choice((*moves, self.cut, self.crash, self.cut_power))()

    # What is so.

    def check(self) -> None:
        here = dict(found(self.log))
        newest: dict[bytes, int] = {}
        for offset, producer, key, value in self.written:
            outcome = self.outcome(offset, producer)
            if outcome is None:
                assert here.get(offset) == value, f"{offset} is undecided, and gone"
            elif outcome and offset > newest.get(key, -1):
                newest[key] = offset
        for key, offset in newest.items():
            assert offset in here, f"{offset} is the newest committed record of {key!r}, and gone"
        last = {producer: offset for offset, producer, *_ in self.written}
        for producer in last.keys() - self.unsure - {-1}:
            known = self.log.producers.producers.get(producer)
            sequence = self.sequences[last[producer]]
            assert known is not None and known.last_sequence == sequence, producer

    def outcome(self, offset: int, producer: int) -> bool | None:
        """Whether a record counts; None: nobody knows yet."""
        if producer < 0:
            return True
        later = (committed for at, who, committed in self.ended if who == producer and at > offset)
        return next(later, None)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_a_power_cut_leaves_undecided_is_there(seed):
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.cut_power()
