"""Which hosted logs are compacted, when, and what follows from how a pass ended.

What: `look` weighs the logs whose topics want them compacted, and begins passes over the dirtiest,
as many at a time as `log.cleaner.threads` says; `take_passes` hands them out. The performer has
each pass read and write, and says with `ended` how it ended:

    done        nothing: the next look weighs the log again
    given up    the log rests for `log.cleaner.backoff.ms`: what was in the way may be gone then
    cold        the performer has warmed what was missing: the next look weighs the log again
    full        as given up, and an operator is told
    corrupt     the log is left alone from then on, an operator is told, and the others go on
    storage     its folder fails
    bug         as corrupt, since it would fail again, for ever

Rules kept: a log has one pass at a time, and retention leaves its segments alone meanwhile; one
that is copied to another folder has none, since the copy would have a value and miss the tombstone,
or an aborted record and miss the marker, that a pass takes away before the copy gets there; what is
said of a log that is not hosted any more changes nothing; a log that was deleted and made anew
under the same name is not taken for the one that was left alone. Source: Kafka's LogCleanerManager
(uncleanable partitions). Not here: what a pass does (`core/log/compaction.py`), when it counts
(`core/log/cleaner.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from anabranch.core.broker.hosting.effects import Effect, Report
from anabranch.core.errors import StorageFault
from anabranch.core.log import cleanable, cleaner, compaction
from anabranch.core.log.cleaner import PassEnd
from anabranch.core.log.files import ColdRead

if TYPE_CHECKING:
    from anabranch.core.broker.hosting.host import Host
    from anabranch.core.broker.hosting.logs import Logs
    from anabranch.core.log.log import Log
    from anabranch.core.log.logs import LogFolder
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import TopicPartition

LEAST_BACKOFF_MS = 10
"""`log.cleaner.backoff.ms` may be 0; a broker has more to do than to look for work."""
LOOKED_AT_ONCE = 200
"""Logs that are weighed before the performer may do other things."""
AGAIN = (PassEnd.GIVEN_UP, PassEnd.FULL)
LEFT_ALONE = (PassEnd.CORRUPT, PassEnd.BUG)


class Pass:
    """One pass over one log, from the choice to its end."""

    def __init__(
        self,
        replica: Replica,
        folder: LogFolder,
        dirt: cleanable.Dirt,
        is_hosted: Callable[[Replica], bool],
    ) -> None:
        self.replica = replica
        self.place = replica.topic_partition
        self._folder = folder
        self._dirt = dirt
        self._is_hosted = partial(is_hosted, replica)
        self._before = cleaner.Before([], replica.log.cuts)

    def job(
        self, *, now_ms: int, map_bytes: int, io_bytes: int, blocking: bool = True
    ) -> compaction.Job:
        """What is to be read and written, of the log as it is now. Raises Stale where the log was
        cut since it was chosen, for less of it may be compacted then; without `blocking` ColdRead
        for each segment whose index has to be made again."""
        self.check()
        log = self.replica.log
        job = compaction.job(
            log, self._dirt, now_ms=now_ms, map_bytes=map_bytes, io_bytes=io_bytes,
            blocking=blocking,
        )  # fmt: skip
        self._before = cleaner.before_pass(log, job)
        return job

    def check(self) -> None:
        """Raises Stale once the log is no longer the one that the job was made of."""
        cleaner.check(self.replica.log, self._before, is_hosted=self._is_hosted())

    def install(
        self, outcome: compaction.Outcome, clock_ms: Callable[[], int]
    ) -> Iterator[cleaner.Step]:
        """Put what was made in place: see `core.log.cleaner.install`."""
        return cleaner.install(
            self._folder,
            self.replica.log,
            self._before,
            outcome,
            is_hosted=self._is_hosted,
            clock_ms=clock_ms,
        )

    def discard(self) -> None:
        """Remove what was made and not put in place; may be called in a thread. What is not hosted
        any more goes with its log, or when that is opened."""
        if self._is_hosted():
            cleaner.discard(self._folder.files, self.replica.log.folder)


class LogCleaner:
    """See the module. `uncleanable` are the logs that are left alone, and why."""

    def __init__(self, broker: Host, logs: Logs, effects: list[Effect]) -> None:
        self.uncleanable: dict[TopicPartition, tuple[Log, str]] = {}
        self.max_dirty_ratio = 0.0
        """Of what the last look has found."""
        self._broker = broker
        self._logs = logs
        self._effects = effects
        self._running: dict[TopicPartition, Pass] = {}
        self._begun: list[Pass] = []
        self._resting: dict[TopicPartition, int] = {}
        """Logs that rest, and until when by the steady clock."""

    @property
    def backoff_ms(self) -> int:
        """How long to wait between two looks, and before a log that rests is weighed again."""
        return max(LEAST_BACKOFF_MS, self._broker.config.log_cleaner_backoff_ms)

    @property
    def is_busy(self) -> bool:
        """Whether a pass runs."""
        return bool(self._running)

    def is_cleaning(self, place: TopicPartition) -> bool:
        """Whether a pass reads a log's segments."""
        return place in self._running

    # Choosing.

    def look(self, now_ms: int, wall_ms: int) -> Iterator[ColdRead | None]:
        """Weigh the logs and begin passes. Yields what is to be warmed before the next look, and
        None now and then: other work may run. `now_ms` is the steady clock."""
        self._resting = {key: due for key, due in self._resting.items() if due > now_ms}
        self._forget_uncleanable()
        found = []
        for number, replica in enumerate(list(self._logs.compacted.values()), start=1):
            try:
                dirt = self._dirt(replica, wall_ms)
            except ColdRead as cold:
                yield cold
                continue
            if dirt is not None and dirt.dirty_bytes:
                found.append((replica, replica.log, dirt))
            if number % LOOKED_AT_ONCE == 0:
                yield None
        moving = self._broker.partitions.moves.copies
        found = [each for each in found if each[0].topic_partition not in moving]
        chosen, self.max_dirty_ratio = cleaner.dirtiest(found)
        room = self._broker.config.log_cleaner_threads - len(self._running)
        for replica, dirt in chosen[: max(0, room)]:
            self._begin(replica, dirt)

    def take_passes(self) -> list[Pass]:
        """The passes that the last look has begun."""
        begun, self._begun = self._begun, []
        return begun

    def _dirt(self, replica: Replica, wall_ms: int) -> cleanable.Dirt | None:
        """What a pass could do; None for logs that get none now."""
        log, place = replica.log, replica.topic_partition
        if not cleaner.may_be_cleaned(log) or not self._logs.is_hosted(replica):
            return None
        if place in self.uncleanable or place in self._resting or place in self._running:
            return None
        folder, high_watermark = self._folder_of(replica), replica.high_watermark
        try:
            return cleaner.dirt_of(
                folder, place, log, now_ms=wall_ms, high_watermark=high_watermark
            )
        except StorageFault as fault:
            self._broker.faults.append((replica, fault))
            return None

    def _forget_uncleanable(self) -> None:
        """Logs that were deleted, and perhaps made anew under the same name."""
        for place, (log, _) in tuple(self.uncleanable.items()):
            replica = self._broker.partitions.get(*place)
            if replica is None or replica.log is not log:
                del self.uncleanable[place]

    def _begin(self, replica: Replica, dirt: cleanable.Dirt) -> None:
        begun = Pass(replica, self._folder_of(replica), dirt, self._logs.is_hosted)
        self._running[begun.place] = begun
        self._begun.append(begun)

    def _folder_of(self, replica: Replica) -> LogFolder:
        return self._logs.folders.by_path[replica.folder]

    # What came of it.

    def ended(self, ended: Pass, end: PassEnd, why: str, now_ms: int) -> None:
        """A pass has ended; what it made and did not put in place is removed already."""
        del self._running[ended.place]
        replica, place = ended.replica, ended.place
        if not self._logs.is_hosted(replica):
            return  # deleted meanwhile, and its files with it
        if end in AGAIN:
            self._resting[place] = now_ms + self.backoff_ms
        elif end in LEFT_ALONE:
            self.uncleanable[place] = (replica.log, why)
        elif end is PassEnd.STORAGE:
            self._logs.folders.failed(replica.folder, StorageFault(why))
        if end in SAID:
            level, sentence = SAID[end]
            self._effects.append(Report(level, sentence, place, why=why))


SAID = {
    PassEnd.GIVEN_UP: ("info", "gave up compacting"),
    PassEnd.FULL: ("warning", "a log was not compacted: the disk is full"),
    PassEnd.CORRUPT: ("error", "a log is no longer compacted"),
    PassEnd.BUG: ("error", "a log is no longer compacted"),
}
"""What operators are told: the level, and the sentence."""
