"""A log that moves to another folder: wherever the process dies, and whatever a power cut takes, no
record is lost that was synced, nor any that was appended where the power stayed."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.broker.hosting_kit import FOLDERS, WALL_MS, Stage
from tests.core.log.support import read_batches, sync, tags

from anabranch.core.broker.hosting import effects as does
from anabranch.core.broker.hosting import events
from anabranch.core.broker.hosting.effects import TellHosted
from anabranch.core.types import TopicPartition
from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.disk import SimDisk

PLACE = TopicPartition("t", 0)
IDS = {path: bytes([number]) * 16 for number, path in enumerate(FOLDERS, 1)}


class Killed(BaseException):
    """The process dies here."""


class KillingDisk(SimDisk):
    """Ends the process at one of its calls."""

    kill_in = 0

    def step(self, call: str, path: str) -> None:
        self.kill_in -= 1
        if self.kill_in == 0:
            raise Killed
        super().step(call, path)


class Crashing(Stage):
    """A broker on such a disk, and what must be found in its partition."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.files = self.disk = KillingDisk(self.random)
        for path in FOLDERS:
            self.disk.mount(path)
        self.written: list[int] = []
        self.is_moving = False
        self.flushed = 0
        self.begin()
        self.publish(self.create("t"))
        self.told()
        for _ in range(self.random.randint(0, 30)):
            self.write()

    @property
    def replica(self):
        return self.partitions.get(*PLACE)

    def begin(self) -> None:
        """A process starts on what the last one left."""
        self.start()
        self.partitions.directory_ids = IDS
        config = self.broker.config.__dict__
        config["replica_alter_log_dirs_io_max_bytes_per_second"] = self.random.choice([900, 9000])
        self.publish()

    def told(self) -> None:
        """The metadata names the folder that hosting told of last."""
        folders = [each.replica.folder for each in self.done if isinstance(each, TellHosted)]
        topic = self.topics["t"]
        state = topic.partitions[0]
        if folders and state.directories != (IDS[folders[-1]],):
            state = replace(
                state,
                directories=(IDS[folders[-1]],),
                partition_epoch=state.partition_epoch + 1,
            )
            self.topics["t"] = replace(topic, partitions=topic.partitions.set(0, state))

    def write(self) -> None:
        tag = len(self.written)
        value = tag.to_bytes(8, "big") + bytes(self.random.choice([5, 200]))
        batch = build_batch([Record(0, WALL_MS, b"k", value)])
        self.replica.append(batch, required_acks=1, now_ms=WALL_MS)
        self.written.append(tag)
        if self.random.random() < 0.2:
            self.replica.log.roll(WALL_MS)
        if self.random.random() < 0.3:
            sync(self.replica.log)
            self.flushed = max(self.flushed, self.replica.log.flushed_offset)
        if self.random.random() < 0.3 and not self.is_moving:
            self.hosting.folders.checkpoint()
            self.hosting.folders.save_high_watermarks()
            self.run()

    def move(self) -> None:
        """Move while records come."""
        others = [path for path in FOLDERS if path != self.replica.folder]
        path = self.random.choice(others)
        self.partitions.moves.ask(PLACE, path, self.replica.folder)
        for _ in range(self.random.randint(1, 12)):
            self.tick(1000)
            if self.random.random() < 0.5:
                self.told()
            for _ in range(self.random.randint(0, 3)):
                self.write()

    def _prepared(self, asked: does.PrepareMove) -> events.MovePrepared:
        """Records come while a thread syncs the copy."""
        answer = super()._prepared(asked)
        self.is_moving = True  # effects are being performed: no others now
        for _ in range(self.random.randint(0, 2)):
            self.write()
        self.is_moving = False
        return answer

    def crash(self, *, power: bool) -> None:
        """The process has died, perhaps with the power; the next one finds the partition."""
        self.disk.kill_in = 0
        if power:
            self.disk.cut_power()
        self.disk.started()
        self.begin()
        assert self.replica is not None, [self.disk.list(path) for path in FOLDERS]
        found = tags(self.replica.log) if self.replica.end_offset else []
        least = self.flushed if power else len(self.written)
        assert found == self.written[: len(found)]
        assert len(found) >= least, (self.replica.folder, len(found), least)
        self.written = found


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 150), st.booleans(), st.booleans())
def test_a_crash_at_any_call_of_a_move_leaves_one_good_log(
    seed: int, call: int, power: bool, power_later: bool
) -> None:
    stage = Crashing(seed)
    stage.disk.kill_in = call
    with suppress(Killed):
        stage.move()
    stage.crash(power=power)
    for _ in range(3):
        stage.write()
    sync(stage.replica.log)
    stage.flushed = max(stage.flushed, stage.replica.log.flushed_offset)
    stage.crash(power=power_later)
    stage.told()
    for _ in range(40):
        stage.tick(1000)
    assert not stage.partitions.moves.copies
    before = read_batches(stage.replica.log) if stage.written else []
    stage.crash(power=False)
    assert (read_batches(stage.replica.log) if stage.written else []) == before
    left = [name for path in FOLDERS for name in stage.disk.list(path)]
    assert left.count("t-0") == 1
    assert not any(name.endswith("-future") for name in left)
