"""R5: what a sync round said is safe is there after a power cut, whatever happened meanwhile.

A round is begun, its files are synced one by one, and it is ended; between any two of these the log
grows, rolls, is cut and grows again, as it does while a thread waits for the disk.
"""

from __future__ import annotations

import pytest
from tests.core.log.support import NOW_MS
from tests.core.log.test_crashes import World

from anabranch.core.errors import CorruptLog
from anabranch.core.log.files import Syncable
from anabranch.core.log.log import Log
from anabranch.core.log.segment import OFFSETS, TIMES

STEPS = 40


class Rounds(World):
    """A partition on a bad disk, of which a round may be under way."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.round: tuple[Log, int, list[Syncable]] | None = None

    def begin(self) -> None:
        """Ask what is to be synced."""
        target = self.log.sync_target() if self.round is None else None
        if target is not None:
            self.round = self.log, target[0], list(target[1])

    def sync_one(self) -> None:
        """The next file of the round is safe."""
        if self.round is not None and self.round[2]:
            self.round[2].pop(0).sync()

    def end(self) -> None:
        """All of them are; from now on nothing may be missing of what the log says."""
        if self.round is None:
            return
        log, end_offset, files = self.round
        for file in files:
            file.sync()
        log.synced(end_offset)
        self.round = None
        self.flushed = max(self.flushed, log.flushed_offset)
        self.check_beside(log)

    def check_beside(self, log: Log) -> None:
        """Recovery trusts what lies beside segments that end before the recovery point's."""
        if log.fault is not None or not log.segments:
            return
        for segment in log.segments[: max(0, log.segment_index(log.flushed_offset - 1))]:
            for suffix in (OFFSETS, TIMES):
                inode = self.disk.names.get(segment.stem + suffix)
                assert inode is None or not inode.dirty, f"{segment.stem}{suffix} was not synced"

    def roll(self) -> None:
        if self.log.active is not None and self.log.active.size:
            self.log.roll(NOW_MS)

    def stop(self) -> None:
        self.end()
        super().stop()

    def cut_power(self) -> None:
        self.round = None
        try:
            self.restart(power=True)
        except CorruptLog as lost:
            raise AssertionError(f"the log is shorter than it said: {lost}") from None


@pytest.mark.parametrize("seed", range(50))
def test_what_a_round_said_is_there_after_a_power_cut(seed: int) -> None:
    world = Rounds(seed)
    weights = {
        world.append: 40,
        world.begin: 12,
        world.sync_one: 16,
        world.end: 8,
        world.roll: 6,
        world.truncate: 6,
        world.retire: 2,
        world.checkpoint: 4,
        world.stop: 1,
        world.cut_power: 4,
    }
    for step in [*world.random.choices(list(weights), list(weights.values()), k=STEPS), world.end]:
        step()
    world.cut_power()
