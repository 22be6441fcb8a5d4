"""A copy of a partition's log that grows in another folder of the broker, and takes its place.

    data1/flights-0                      the log; it is read and written as ever
    data2/flights-0.<unique>-future      the copy (Kafka's name for it), no reader sees it

The copy takes whole batches from the log as a follower does from its leader, and begins again when
the log's end is cut. It takes the log's place in one step of the loop, when it has all of it:

    1. the copy is closed and synced        a crash: the log is there, the copy is removed
    2. it is renamed to `flights-0`, synced a crash: both are there, with the same records; the
                                            metadata names the log's folder, so the log is opened
    3. the log is renamed to `-delete`      a power cut: as before, or the copy alone
    4. that is synced; only then is a record appended to the copy

So at every point one folder has a log with all that was there, and never two that differ under the
partition's name. Source: KIP-113. Not here: which logs move, and when (`core/broker/hosting`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.errors import StorageFault
from anabranch.core.log.sync_round import close_cleanly
from anabranch.core.wire.batch import read_header

if TYPE_CHECKING:
    from anabranch.core.log.files import Syncable
    from anabranch.core.log.log import Log
    from anabranch.core.log.logs import LogFolder
    from anabranch.core.types import Buffer

NOT_BEGUN = -1


class SourceFailed(Exception):
    """The log that is copied, or its folder, failed: the copy's folder did not."""

    def __init__(self, fault: StorageFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class Taken(NamedTuple):
    """A copy that has taken the log's place; `fault` is why the log's folder failed, if it did."""

    log: Log
    fault: StorageFault | None


class FutureLog:
    """The copy `log`, in the folder `target`, of `source`, in the folder `origin`."""

    def __init__(
        self, source: Log, origin: LogFolder, target: LogFolder, *, unique: str, now_ms: int
    ) -> None:
        self.source, self.origin, self.target = source, origin, target
        self.log = target.begin_future(
            source.topic_partition, source.topic_id, source.config, unique=unique, now_ms=now_ms
        )
        self._cuts = NOT_BEGUN

    @property
    def lag(self) -> int:
        """Offsets that the copy lacks."""
        return max(0, self.source.end_offset - self.log.end_offset)

    @property
    def has_all(self) -> bool:
        """Whether the copy ends where the log ends."""
        return self._cuts == self.source.cuts and self.log.end_offset == self.source.end_offset

    def copy(self, most_bytes: int, now_ms: int) -> int:
        """Take over the next batches, at least one if there is one; their bytes. Raises ColdRead,
        SourceFailed, StorageFault for the copy's folder."""
        source, log = self.source, self.log
        log.config = source.config
        if self._cuts != source.cuts or log.end_offset < source.local_start_offset:
            self._begin(now_ms)
        offset = max(log.end_offset, source.local_start_offset)
        batches = self._read(offset, most_bytes)
        if batches:
            log.append_as_follower(batches, now_ms=now_ms)
        return len(batches)

    def _begin(self, now_ms: int) -> None:
        """Where the log begins now, which may be within a batch; what was copied is dropped."""
        source, log = self.source, self.log
        first = self._read(source.local_start_offset, 0)
        begin = read_header(first).base_offset if first else source.end_offset
        beginning = None
        if source.start_offset < begin == source.local_start_offset:
            try:
                beginning = source.local_beginning()
            except StorageFault as fault:
                raise SourceFailed(fault) from fault
        log.producers.now_ms = now_ms
        log.truncate_fully(begin, source.start_offset, beginning)
        log.remove_deleted_files(now_ms + log.config.file_delete_delay_ms)
        self._cuts = source.cuts

    def _read(self, offset: int, most_bytes: int) -> Buffer:
        source = self.source
        try:
            return source.read(
                offset, max_bytes=most_bytes, upto=source.end_offset, at_least_one=True
            )
        except StorageFault as fault:
            raise SourceFailed(fault) from fault

    def sync_target(self) -> tuple[int, tuple[Syncable, ...]] | None:
        """See `Log.sync_target`: synced in rounds, little of the copy is left to the end."""
        return self.log.sync_target()

    def take_place(self, *, unique: str, now_ms: int) -> Taken:
        """Have the copy, which `has_all`, be the partition's log. Raises StorageFault, or
        SourceFailed where the log cannot leave; then the copy was dropped, and the log is as
        before."""
        source, copied = self.source, self.log
        if source.epochs.latest > copied.epochs.latest:
            copied.assign_leader_epoch(source.epochs.latest)  # it has no record yet
        copied.delete_records_before(source.start_offset)
        if source.start_offset < source.local_start_offset:
            copied.epochs.precede(source.epochs, copied.local_start_offset)
        close_cleanly(copied)
        log = self.target.adopt_future(copied, unique=unique, now_ms=now_ms)
        try:
            self.origin.rename_away(copied.topic_partition, unique=unique, now_ms=now_ms)
        except StorageFault as fault:
            self.target.delete_log(copied.topic_partition, unique=unique, now_ms=now_ms)
            raise SourceFailed(fault) from fault
        log.producers = source.producers
        log.compacted_to = source.compacted_to
        try:
            self.origin.settle_names()
        except StorageFault as fault:
            return Taken(log, fault)
        return Taken(log, None)

    def drop(self, now_ms: int, *, unique: str) -> None:
        """Take the copy away: the log stays where it is. Raises StorageFault."""
        self.target.drop_future(self.log, unique=unique, now_ms=now_ms)
