"""R5, R15: whatever call fails and whenever the power goes, no record that counts is lost."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.log.compacting import IO_BYTES, batches_of
from tests.core.log.support import KEY, NOW_MS, TOPIC_ID, append, marker, sync

from anabranch.core.errors import StorageFault
from anabranch.core.log import cleanable, cleaner, compaction
from anabranch.core.log.config import LogConfig
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import Record, build_batch, decode_records
from anabranch.sim.disk import SimDisk

CONFIG = LogConfig(
    segment_bytes=2500,
    index_interval_bytes=200,
    file_delete_delay_ms=0,
    cleanup_policy=("compact",),
    delete_retention_ms=1000,
)
KEYS = 6
Model = dict[bytes, tuple[int, bytes | None]]


class World:
    """One compacted partition on a bad disk, and what a reader of everything must find there."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(self.random)
        self.folder = LogFolder(self.disk, "data")
        self.log: Log = self.folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
        self.newest: Model = {}
        """Key -> its newest committed record."""
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        self.aborted: set[int] = set()
        self.sequences = {1: 0, 2: 0}
        self.epochs = {1: 0, 2: 0}
        self.now_ms = NOW_MS

    def produce(self) -> None:
        """A batch of one of two producers, of a transaction perhaps, which ends at once."""
        producer = self.random.choice([1, 2])
        transaction = self.random.choice([None, None, True, False])
        pairs = [
            (
                b"k%d" % self.random.randrange(KEYS),
                None if self.random.random() < 0.2 else self.random.randbytes(30),
            )
            for _ in range(self.random.randint(1, 4))
        ]
        records = [
            Record(index, self.now_ms, key, value) for index, (key, value) in enumerate(pairs)
        ]
        first = append(
            self.log,
            build_batch(
                records,
                codec=self.random.choice([Codec.NONE, Codec.ZSTD]),
                producer_id=producer,
                producer_epoch=self.epochs[producer],
                base_sequence=self.sequences[producer],
                transactional=transaction is not None,
            ),
            now_ms=self.now_ms,
        )
        self.sequences[producer] += len(pairs)
        for offset, (key, value) in enumerate(pairs, first):
            self.written[offset] = (key, value)
            if transaction is False:
                self.aborted.add(offset)
            else:
                self.newest[key] = (offset, value)
        if transaction is not None:
            epoch = self.epochs[producer]
            end = marker(producer, committed=transaction, producer_epoch=epoch)
            self.log.append_as_leader(end, leader_epoch=0, now_ms=self.now_ms, client=False)
            if self.random.random() < 0.5:  # as in KIP-890
                self.epochs[producer], self.sequences[producer] = epoch + 1, 0

    def fill(self) -> None:
        """Small segments, so that several become one; synced, as compaction wants them. That they are
        need not be checkpointed yet."""
        for _ in range(self.random.randint(2, 8)):
            for _ in range(self.random.randint(1, 4)):
                self.produce()
            self.log.roll(self.now_ms)
        sync(self.log)
        if self.random.random() < 0.5:
            self.folder.checkpoint()
        self.disk.stored_names = dict(self.disk.names)

    def compact(self) -> None:
        """A pass, and the swap of what it made, in the cleaner's own steps."""
        found = cleanable.dirt(
            self.log,
            now_ms=self.now_ms,
            high_watermark=self.log.end_offset,
            first_dirty_offset=self.folder.clean_points.get(KEY, 0),
        )
        map_bytes = self.random.choice([400, 1 << 20])
        job = compaction.job(
            self.log, found, now_ms=self.now_ms, map_bytes=map_bytes, io_bytes=IO_BYTES
        )
        *_, outcome = compaction.run(self.disk, job)
        assert isinstance(outcome, compaction.Outcome)
        before = cleaner.before_pass(self.log, job)
        for step in cleaner.install(
            self.folder,
            self.log,
            before,
            outcome,
            is_hosted=lambda: True,
            clock_ms=lambda: self.now_ms,
        ):
            step.call()
        self.log.remove_deleted_files(self.now_ms)

    def copy(self) -> None:
        """Another replica's log: it was copied from this one, and nothing of it was compacted."""
        batches = batches_of(self.log)
        self.disk = SimDisk(self.random)
        self.folder = LogFolder(self.disk, "data")
        self.log = self.folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=self.now_ms)
        for batch in batches:
            self.log.append_as_follower(bytearray(batch), now_ms=self.now_ms)
            if self.random.random() < 0.3:
                self.log.roll(self.now_ms)
        self.disk.sync_all()

    def restart(self, *, power: bool) -> None:
        """The process dies, perhaps with the power; indexes and checkpoints are as they are."""
        self.disk.fail_in = -1
        if power:
            self.disk.cut_power()
        self.open()

    def open(self) -> None:
        """What a new process does."""
        self.folder = LogFolder(self.disk, "data")
        self.log = self.folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=self.now_ms)

    def check(self) -> None:
        """What a reader of everything finds, and what the broker knows of the producers."""
        offsets: list[int] = []
        newest: Model = {}
        for batch in batches_of(self.log):
            header = read_header(batch)
            if header.is_control:
                continue
            for record in decode_records(batch):
                assert self.written[record.offset] == (record.key, record.value)
                offsets.append(record.offset)
                if not self._is_aborted(header.producer_id, record.offset):
                    assert record.offset not in self.aborted
                    assert record.key is not None
                    newest[record.key] = (record.offset, record.value)
        assert offsets == sorted(set(offsets))
        assert self._living(newest) == self._living(self.newest)
        for producer, sequence in self.sequences.items():
            known = self.log.producers.producers.get(producer)
            assert sequence == 0 or (known is not None and known.last_sequence == sequence - 1)

    @staticmethod
    def _living(newest: Model) -> Model:
        """A deleted key is one without a record, or with a tombstone as its newest."""
        return {key: found for key, found in newest.items() if found[1] is not None}

    def _is_aborted(self, producer: int, offset: int) -> bool:
        """As a read_committed client decides it, by the ranges that a fetch answers."""
        ranges = self.log.aborted_transactions(offset, offset + 1)
        return any(one.producer_id == producer and one.first_offset <= offset for one in ranges)


def crash_at(world: World, call: int, act: Callable[[], None]) -> bool:
    """Let one call of the disk fail; whether it came to that."""
    world.disk.fail_in = call
    try:
        act()
    except StorageFault:
        return True
    finally:
        world.disk.fail_in = -1
    return False


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 250), st.booleans(), st.integers(1, 60))
def test_a_crash_anywhere_in_compaction_loses_no_record_that_counts(
    seed: int, call: int, power: bool, while_opening: int
) -> None:
    """read_uncommitted and read_committed; also when the opening after the crash crashes."""
    world = World(seed)
    for _ in range(world.random.randint(1, 4)):
        world.fill()
        if world.random.random() < 0.7:
            world.compact()
            world.check()
        world.now_ms += world.random.choice([0, 2000])
        if world.random.random() < 0.3:
            world.copy()
    world.fill()
    crash_at(world, call, world.compact)
    if power:
        world.disk.cut_power()
    crash_at(world, while_opening, world.open)
    world.restart(power=power)
    world.check()
    world.now_ms += 2000
    world.compact()
    world.check()
    world.restart(power=True)
    world.check()
    leftovers = (".cleaned", ".swap", ".swapping")
    assert not [name for name in world.disk.list(world.log.folder) if name.endswith(leftovers)]
