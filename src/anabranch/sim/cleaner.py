"""Compaction on one simulated broker: what `server/cleaner.py` does, without threads and processes.

What: every `log.cleaner.backoff.ms` the dirtiest log gets a pass (`core.log.cleaner`). Reading and
writing takes virtual time, and so does each step of the exchange of segments, so that a crash, a
cut, a move or a deletion comes between any two. Rule kept: one pass at a time. Not here: which log,
what a pass keeps, how segments are exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log import cleaner, compaction, segment_swap
from anabranch.core.log.files import DiskFull
from anabranch.core.types import TopicPartition

if TYPE_CHECKING:
    from anabranch.core.log.log import Log
    from anabranch.core.log.segment import Segment
    from anabranch.core.replication.replica import Replica
    from anabranch.sim.hosting import Hosting

STEP_US = (200, 20_000)
"""What each step of a pass takes, besides a slow disk."""
MAP_BYTES = (300, 1 << 16)
"""Memory of a pass: some passes end before all that is dirty."""


class Cleaning:
    """See the module. One a life of a node."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._node = hosting.node
        self._world = hosting.world
        self._random = self._world.random(f"{self._node.name}/cleaner")
        self._place: TopicPartition | None = None
        self._left_alone: dict[TopicPartition, Log] = {}
        self._is_awake = False

    def is_cleaning(self, place: TopicPartition) -> bool:
        """Whether a pass reads a log's segments."""
        return place == self._place

    @property
    def is_busy(self) -> bool:
        """Whether a pass runs."""
        return self._place is not None

    def wake(self) -> None:
        """A log is hosted that is compacted: look after it from now on."""
        if not self._is_awake:
            self._is_awake = True
            self._later()

    def _later(self) -> None:
        self._node.later(self._hosting.broker.config.log_cleaner_backoff_ms, self._look)

    def _look(self) -> None:
        """Begin a pass over the dirtiest log, unless one runs."""
        if self._place is None:
            found = []
            for replica in self._hosting.broker.partitions:
                dirt = self._dirt(replica)
                if dirt is not None and dirt.dirty_bytes:
                    found.append((replica, replica.log, dirt))
            chosen, _ = cleaner.dirtiest(found)
            if chosen:
                self._begin(*chosen[0])
        self._later()

    def _dirt(self, replica: Replica) -> compaction.Dirt | None:
        log, place = replica.log, replica.topic_partition
        if not cleaner.may_be_cleaned(log) or self._left_alone.get(place) is log:
            return None
        folder, high_watermark = self._hosting.folders[replica.folder], replica.high_watermark
        now_ms = self._world.now_ms
        try:
            return cleaner.dirt_of(folder, place, log, now_ms=now_ms, high_watermark=high_watermark)
        except StorageFault as fault:
            self._hosting.broker.faults.append((replica, fault))
            return None

    def _begin(self, replica: Replica, dirt: compaction.Dirt) -> None:
        self._place = replica.topic_partition
        self._wait(self._pass(replica, dirt), replica)

    def _wait(self, steps: Iterator[None], replica: Replica) -> None:
        delay_us = self._random.randint(*STEP_US) + self._node.disk_delay_us
        self._world.after_in(self._node, delay_us, self._go_on, steps, replica)

    def _go_on(self, steps: Iterator[None], replica: Replica) -> None:
        """Make the next step of a pass."""
        self._node.begin()
        try:
            next(steps)
        except (StopIteration, segment_swap.Stale, StorageFault) as end:
            self._place = None
            self._ended(replica, end)
        else:
            self._wait(steps, replica)
        self._node.settle()

    def _pass(self, replica: Replica, dirt: compaction.Dirt) -> Iterator[None]:
        """A pass, which pauses wherever a real one waits for its worker or for the disk."""
        log, files = replica.log, self._node.disk
        job = compaction.job(
            log,
            dirt,
            now_ms=self._world.now_ms,
            map_bytes=self._random.choice(MAP_BYTES),
            io_bytes=0,
        )
        before = log.segments[: len(job.segments)]
        yield
        self._check(replica, before)
        *_, outcome = compaction.run(files, job)
        assert isinstance(outcome, compaction.Outcome)
        yield
        self._check(replica, before)
        steps = cleaner.install(
            self._hosting.folders[replica.folder],
            log,
            before,
            outcome,
            is_hosted=lambda: self._is_hosted(replica),
            clock_ms=lambda: self._world.now_ms,
        )
        segments = list(log.segments)
        for step in steps:
            if log.segments[: len(segments)] != segments:
                segments = list(log.segments)
                self._node.cluster.tell_compacted(self._node, replica.topic_partition)
            step.call()
            yield
        self._world.note(
            "compacted", self._node.name, str(replica.topic_partition),
            upto=outcome.upto, read=outcome.read_records, kept=outcome.kept_records,
        )  # fmt: skip

    def _is_hosted(self, replica: Replica) -> bool:
        return self._hosting.broker.partitions.get(*replica.topic_partition) is replica

    def _check(self, replica: Replica, before: list[Segment]) -> None:
        cleaner.check(replica.log, before, is_hosted=self._is_hosted(replica))

    def _ended(self, replica: Replica, end: Exception) -> None:
        """What a pass has left goes; a log that cannot be read is left alone, a folder fails."""
        if not self._is_hosted(replica):
            return
        try:
            cleaner.discard(self._node.disk, replica.log.folder)
            if isinstance(end, CorruptLog):
                self._left_alone[replica.topic_partition] = replica.log
            elif isinstance(end, StorageFault) and not isinstance(end, DiskFull):
                raise end
        except StorageFault as fault:
            self._hosting.folder_failed(replica.folder, fault)
