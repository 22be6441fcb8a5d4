"""Replicas that move from one folder of a broker to another, one at a time (AlterReplicaLogDirs).

What: copies the log a piece at a time while it is read and written, has the copy synced in a
thread, and has it take the log's place once little is left. Rules kept: copying is paced, by
`replica.alter.log.dirs.io.max.bytes.per.second` and by `MOST_A_TICK`; a log that is being synced is
not swapped; one that is being compacted is not copied, and the other way round; what no disk can
take is given up and told; a move that a stop interrupted begins again after the start. Source:
KIP-113. Not here: the order in which files get their names (`core/log/future_log.py`), and telling
the controller, which follows from TellHosted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.core.broker.hosting.effects import (
    Checkpoint,
    Effect,
    PrepareMove,
    Report,
    SaveHighWatermarks,
    TellHosted,
)
from anabranch.core.errors import StorageFault
from anabranch.core.log.files import ColdRead, DiskFull
from anabranch.core.log.future_log import FutureLog, SourceFailed

if TYPE_CHECKING:
    from anabranch.core.broker.hosting.host import Host
    from anabranch.core.broker.hosting.log_cleaner import LogCleaner
    from anabranch.core.broker.hosting.logs import Logs
    from anabranch.core.broker.hosting.syncs import Syncs
    from anabranch.core.log.files import Syncable
    from anabranch.core.log.log import Log
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import TopicPartition

MOST_A_TICK = 32 << 20
"""Bytes copied each second at most, so that clients keep most of the disk and of the loop."""
PIECE_BYTES = 512 << 10
"""Bytes copied at a time: about a millisecond of the loop."""
FINAL_BYTES = 2 << 20
"""What may be left when the copy takes the log's place: it is copied and synced on the loop."""


class Warming:
    """A part of the log that is not in memory, to be brought in by a thread."""

    __slots__ = ("_cold",)

    def __init__(self, cold: ColdRead) -> None:
        self._cold = cold

    def sync(self) -> None:
        self._cold.warm()


class FolderMoves:
    """See the module. At most one copy grows at a time."""

    def __init__(
        self, broker: Host, logs: Logs, cleaner: LogCleaner, syncs: Syncs, effects: list[Effect]
    ) -> None:
        self._broker = broker
        self._logs = logs
        self._cleaner = cleaner
        self._syncs = syncs
        self._effects = effects
        self._moves = broker.partitions.moves
        self._copy: FutureLog | None = None
        self._is_prepared = True
        """Whether no thread works for the copy."""
        self._left_bytes = 0
        """What may be copied until the next tick."""
        self._round: tuple[int, bool] = (0, False)
        self._made = 0

    @property
    def is_busy(self) -> bool:
        """Whether there is something to move."""
        return bool(self._moves.wanted or self._copy)

    def interrupted(self, place: TopicPartition, path: str) -> None:
        """The last process was copying a log to a folder when it ended."""
        self._moves.wanted.setdefault(place, path)

    def tick(self, wall_ms: int) -> Iterator[None] | None:
        """A second is over: what is to be copied in it, a piece at a time; None for nothing."""
        if not self.is_busy:
            return None
        limit = self._broker.config.replica_alter_log_dirs_io_max_bytes_per_second
        self._left_bytes = min(limit, MOST_A_TICK)
        return self._run(wall_ms)

    def prepared(self, fault: StorageFault | None, wall_ms: int) -> Iterator[None] | None:
        """What a thread was asked to do is done: more may be copied."""
        self._is_prepared = True
        copy = self._copy
        if copy is None:
            return None
        end_offset, is_round = self._round
        if fault is not None:
            if is_round:
                self._give_up(copy, fault, wall_ms)
            else:
                self._source_failed(copy, fault, wall_ms)
            return None
        if is_round:
            copy.log.synced(end_offset)
        return self._run(wall_ms, may_end=is_round)

    def _run(self, wall_ms: int, *, may_end: bool = False) -> Iterator[None]:
        """Copy what may be copied now; then have it synced, or end the move."""
        while self._is_prepared:
            copy = self._copy or self._begun(wall_ms)
            if copy is None or not self._is_wanted(copy, wall_ms):
                return
            try:
                if self._left_bytes <= 0:
                    return
                if may_end and self._end(copy, wall_ms):
                    return
                may_end = False
                copied = copy.copy(min(PIECE_BYTES, self._left_bytes), wall_ms)
            except ColdRead as cold:
                cold.forget_frames()
                self._prepare(copy, (0, False), (Warming(cold),))
                return
            except SourceFailed as failed:
                self._source_failed(copy, failed.fault, wall_ms)
                return
            except StorageFault as fault:
                self._give_up(copy, fault, wall_ms)
                return
            self._left_bytes -= copied
            if copied == 0 or self._left_bytes <= 0:
                self._sync(copy, wall_ms)
                return
            yield

    def _begun(self, wall_ms: int) -> FutureLog | None:
        """Begin to copy the next log; None where nothing can be moved now."""
        for place, path in tuple(self._moves.wanted.items()):
            replica = self._broker.partitions.get(*place)
            if replica is None:  # not placed here yet, or not opened; or deleted
                if self._broker.image.partition(*place) is None:
                    del self._moves.wanted[place]
                continue
            folders = self._logs.folders.by_path
            origin, target = folders.get(replica.folder), folders.get(path)
            if replica.folder == path or origin is None or target is None or target.fault:
                del self._moves.wanted[place]
                continue
            if target.room.is_full or self._cleaner.is_cleaning(place):
                continue
            try:
                copy = FutureLog(
                    replica.log, origin, target, unique=self._unique(wall_ms), now_ms=wall_ms
                )
            except StorageFault as fault:
                self._failed(place, path, fault)
                continue
            self._copy = self._moves.copies[place] = copy
            return copy
        return None

    def _is_wanted(self, copy: FutureLog, wall_ms: int) -> bool:
        """Whether a copy is still to take its log's place; it is dropped if it is not."""
        place = copy.source.topic_partition
        replica = self._broker.partitions.get(*place)
        is_hosted = replica is not None and replica.log is copy.source
        if is_hosted and self._moves.wanted.get(place) == copy.target.path:
            if copy.target.fault is None:
                return True
            self._moves.wanted.pop(place, None)
        self._drop(copy, wall_ms)
        return False

    def _sync(self, copy: FutureLog, wall_ms: int) -> None:
        try:
            target = copy.sync_target()
        except StorageFault as fault:
            self._give_up(copy, fault, wall_ms)
            return
        end_offset, files = target or (copy.log.end_offset, ())
        self._prepare(copy, (end_offset, True), files)

    def _prepare(
        self, copy: FutureLog, about: tuple[int, bool], files: tuple[Syncable, ...]
    ) -> None:
        self._is_prepared, self._round = False, about
        self._effects.append(PrepareMove(copy.target.path, files))

    def _end(self, copy: FutureLog, wall_ms: int) -> bool:
        """Have the copy take the log's place, if little is left; whether the move is over."""
        place = copy.source.topic_partition
        if place in self._syncs.under_way:
            return False
        self._left_bytes -= copy.copy(min(FINAL_BYTES, self._left_bytes), wall_ms)
        if not copy.has_all:
            return False
        replica = self._broker.partitions.get(*place)
        assert replica is not None
        origin, target = copy.origin.path, copy.target.path
        taken = copy.take_place(unique=self._unique(wall_ms), now_ms=wall_ms)
        self._forget(copy)
        self._moves.wanted.pop(place, None)
        self._hosted(replica, taken.log, target)
        self._effects.append(Checkpoint(origin))
        if taken.fault is not None:
            self._logs.folders.failed(origin, taken.fault)
        return True

    def _hosted(self, replica: Replica, log: Log, path: str) -> None:
        """Requests meet the log in its new folder from now on."""
        replica.log, replica.folder = log, path
        replica.advance()  # all of it is synced now
        self._logs.note_config(replica)
        self._logs.touch(replica.topic_partition)
        self._effects += (
            SaveHighWatermarks(path),
            Checkpoint(path),
            TellHosted(replica, is_found=True),
            Report("info", "a log moved to another folder", replica.topic_partition, path=path),
        )

    def _give_up(self, copy: FutureLog, fault: StorageFault, wall_ms: int) -> None:
        """The copy's disk refused something: the log stays where it is."""
        self._drop(copy, wall_ms)
        self._failed(copy.source.topic_partition, copy.target.path, fault)

    def _source_failed(self, copy: FutureLog, fault: StorageFault, wall_ms: int) -> None:
        """What is copied cannot be read, or cannot leave: that is told as a request's fault is."""
        place = copy.source.topic_partition
        self._drop(copy, wall_ms)
        self._told_stays(place, copy.target.path, fault)
        replica = self._broker.partitions.get(*place)
        if replica is not None and replica.log is copy.source:
            self._broker.faults.append((replica, fault))

    def _failed(self, place: TopicPartition, path: str, fault: StorageFault) -> None:
        self._told_stays(place, path, fault)
        if not isinstance(fault, DiskFull):
            self._logs.folders.failed(path, fault)

    def _told_stays(self, place: TopicPartition, path: str, fault: StorageFault) -> None:
        self._moves.wanted.pop(place, None)
        why = "a log was not moved to another folder"
        self._effects.append(Report("error", why, place, path=path, why=fault))

    def _drop(self, copy: FutureLog, wall_ms: int) -> None:
        self._forget(copy)
        if copy.target.fault is not None:
            return
        try:
            copy.drop(wall_ms, unique=self._unique(wall_ms))
        except StorageFault as fault:
            self._failed(copy.source.topic_partition, copy.target.path, fault)

    def _forget(self, copy: FutureLog) -> None:
        self._copy = None
        self._moves.copies.pop(copy.source.topic_partition, None)

    def _unique(self, wall_ms: int) -> str:
        """A name that no other folder has, without chance: the time and a count."""
        self._made += 1
        return f"{wall_ms:016x}{self._made:016x}"
