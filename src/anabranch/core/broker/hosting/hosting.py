"""The machine: it follows images, takes answers and faults, and knows what is due.

What: `follow` queues the difference between an image and what is hosted; `advance` does it a
partition at a time, so that a performer may do other things in between. Rules kept: images are
followed in their order; folders are opened (and their clean markers taken away) only when the first
image arrives; a change costs what it touches, however many logs there are. Not here: what the
metadata asks of this broker (`Partitions.plan`), one partition (`logs.py`), folders (`folders.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from anabranch.core.broker.hosting import events
from anabranch.core.broker.hosting.due import Due, Timers
from anabranch.core.broker.hosting.effects import (
    CleanLogs,
    DeleteLog,
    Effect,
    OpenFolder,
    Report,
    TellUnusable,
)
from anabranch.core.broker.hosting.folder_moves import FolderMoves
from anabranch.core.broker.hosting.log_cleaner import LogCleaner
from anabranch.core.broker.hosting.logs import Found, Logs
from anabranch.core.broker.hosting.readiness import Readiness
from anabranch.core.broker.hosting.states import HostedEvent, HostedState
from anabranch.core.broker.hosting.syncs import Syncs
from anabranch.core.errors import Bug, CorruptLog, StorageFault
from anabranch.core.log.files import ColdRead, DiskFull
from anabranch.core.log.segment import LOG
from anabranch.core.log.upkeep import look_after, take_future
from anabranch.core.metadata.image import RESOURCE_TOPIC, MetadataDelta, MetadataImage
from anabranch.core.replication.replica import Replica
from anabranch.core.settings.topic import log_config
from anabranch.core.types import (
    CLUSTER_METADATA_TOPIC,
    UNKNOWN_BROKER_EPOCH,
    TopicId,
    TopicPartition,
)

if TYPE_CHECKING:
    from anabranch.core.broker.hosting.host import Host
    from anabranch.core.log.logs import LogFolder

LOOKED_AT_ONCE = 100
"""Logs with flush.ms that are one piece of work: some tens of microseconds."""


class Hosting:
    """See the package for the caller's duties. `logs` and `folders` are what it knows of them,
    `cleaner` decides which logs are compacted."""

    def __init__(self, broker: Host) -> None:
        self.is_stopping = False
        self.previous_epoch = UNKNOWN_BROKER_EPOCH
        """What the folders said when this process began: see `previous_broker_epoch`."""
        self._broker = broker
        self._partitions = broker.partitions
        self._effects: list[Effect] = []
        self.logs = Logs(broker, self._effects)
        self.folders = self.logs.folders
        self.syncs = Syncs(broker)
        self.cleaner = LogCleaner(broker, self.logs, self._effects)
        self.moves = FolderMoves(broker, self.logs, self.cleaner, self.syncs, self._effects)
        self._readiness = Readiness(self._effects)
        self._timers = Timers()
        self._work: deque[Iterator[None]] = deque()
        self._without_room: set[TopicPartition] = set()
        """Logs whose round a full disk kept from beginning: tried again from time to time."""
        self._config = broker.config
        self._is_open = self._is_flushing = False

    # What the performer calls.

    def follow(
        self,
        image: MetadataImage,
        delta: MetadataDelta | None,
        deleted_before: frozenset[str] = frozenset(),
        deleted_ids: frozenset[TopicId] = frozenset(),
    ) -> None:
        """Follow a new image; `delta` None stands for everything in it, and is the first:
        `deleted_before` are names of topics that went before it, `deleted_ids` their ids, see
        `Act`."""
        if self.is_stopping:
            return  # the next process follows it
        self.logs.deleted_before |= deleted_before
        self.logs.deleted_ids |= deleted_ids
        if not self._is_open:
            self._is_open = True
            self._work.append(self._open_folders())
        self._work.append(self._steps(image, delta))

    def advance(self) -> bool:
        """Do the next piece of what is to be done. False when nothing is left."""
        opening = self.logs.opening
        if opening is not None:
            raise Bug(f"{opening.assignment.topic_partition} is being opened: answer first")
        if not self._work:
            return False
        try:
            next(self._work[0])
        except StopIteration:
            self._work.popleft()
        if not (self._work or self.is_stopping):
            self._readiness.followed(chain(self._broker.unsynced, self.syncs.under_way))
        return True

    @property
    def work_left(self) -> int:
        """Images that are not followed to their end."""
        return len(self._work)

    def take_effects(self) -> tuple[Effect, ...]:
        """What is to be performed now, in order."""
        effects = tuple(self._effects)
        self._effects.clear()
        return effects

    def take_touched(self) -> list[TopicPartition]:
        """The partitions whose replica came, went or changed since the last call."""
        touched = self.logs.touched[:]
        self.logs.touched.clear()
        return touched

    def step(self, event: events.Event, now_ms: int) -> None:
        """Take an answer, or what a disk has shown. `now_ms` is the steady clock."""
        match event:
            case events.LogOpened(place, log):
                self.logs.opened(place, log)
            case events.OpeningFailed(place, fault):
                self.logs.not_opened(place, fault, now_ms)
            case events.NameTaken(place):
                self.logs.name_taken(place)
            case events.FolderOpened(folder, found, _):
                self.folders.opened(event)
                for place, topic_id in found:
                    if place.topic != CLUSTER_METADATA_TOPIC:
                        self.logs.note_found(place, Found(folder.path, topic_id))
                for place in folder.interrupted:
                    self.moves.interrupted(place, folder.path)
            case events.FolderFailed(path, fault):
                self.folders.failed(path, fault)
            case events.Refused(path, fault):
                self.folders.refused(path, fault, now_ms)
            case events.FreeSeen():
                self.folders.free_seen(event, now_ms)
            case events.Reserved(path):
                self.folders.reserved(path, now_ms)
            case events.NotReserved(path):
                self.folders.not_reserved(path, now_ms)
            case events.SyncEnded(asked, fault):
                known = self.syncs.ended(asked, fault)
                if known is not None:
                    self.folders.failed(asked.replica.folder, known)
                self._readiness.ended(asked.replica.topic_partition)
            case events.MovePrepared(fault, wall_ms):
                if not self.is_stopping:
                    self._add(self.moves.prepared(fault, wall_ms))

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Do what time makes due. `now_ms` is the steady clock, `wall_ms` that of records."""
        self.folders.look()
        self.take_faults(now_ms)
        self.retry_roomless()
        self._broker.unsynced.update(self._without_room)
        self._without_room.clear()
        self._effects.append(TellUnusable())
        if not self.is_stopping:
            self._add(self.moves.tick(wall_ms))
        if self.logs.flushed_late and not self._is_flushing:
            self._is_flushing = True
            self._work.appendleft(self._flush_late(wall_ms))  # a long image does not delay it
        for due in self._timers.due(self._broker.config, now_ms):
            if due is Due.HIGH_WATERMARKS:
                self.folders.save_high_watermarks()
            elif due is Due.CHECKPOINTS:
                self.folders.checkpoint()
            else:
                self._effects.append(CleanLogs())

    def _add(self, work: Iterator[None] | None) -> None:
        if work is not None:
            self._work.append(work)

    def start_syncs(self) -> None:
        """Begin a round for every partition in `broker.unsynced`; called at the end of a step."""
        unsynced = sorted(self._broker.unsynced)
        self._broker.unsynced.clear()
        for place in unsynced:
            try:
                asked = self.syncs.begin(place)
            except DiskFull as fault:
                replica = self._partitions.get(*place)
                assert replica is not None
                self._broker.faults.append((replica, fault))
                self._without_room.add(place)
            except StorageFault as fault:
                replica = self._partitions.get(*place)
                assert replica is not None
                self.folders.failed(replica.folder, fault)
            else:
                self._effects += () if asked is None else (asked,)
            if place not in self.syncs.under_way:
                self._readiness.ended(place)

    def take_faults(self, now_ms: int) -> None:
        """Act on the storage faults that requests ran into."""
        faults = self._broker.faults
        while faults:
            replica, fault = faults.pop()
            if not self.is_hosted(replica):
                continue  # deleted meanwhile, and its files with it; or offline already
            if isinstance(fault, DiskFull):
                self.folders.refused(replica.folder, fault, now_ms)
            elif isinstance(fault, CorruptLog):
                self.logs.report_rot(replica.topic_partition, fault)
                self.folders.unclean.add(replica.folder)
                self.logs.leave(replica, HostedEvent.ROT)
            else:
                self.folders.failed(replica.folder, fault)

    def clean_one(self, replica: Replica, wall_ms: int) -> ColdRead | None:
        """Roll a segment that is too old, apply retention, forget idle producers, unless the
        replica is not hosted any more. What is to be warmed first, then to be called again."""
        if not self.is_hosted(replica):
            return None
        is_cleaning = self.cleaner.is_cleaning(replica.topic_partition)
        try:
            if look_after(replica.log, wall_ms, replica.high_watermark, is_cleaning=is_cleaning):
                self._broker.changed[replica.topic_partition] = None
        except StorageFault as fault:
            self._broker.faults.append((replica, fault))
        except ColdRead as cold:
            return cold
        self._tell_future(replica, wall_ms)
        return None

    def _tell_future(self, replica: Replica, wall_ms: int) -> None:
        segment = take_future(replica.log, wall_ms)
        if segment is not None:
            ahead_h = (segment.max_timestamp - wall_ms) // 3_600_000
            self._effects.append(
                Report(
                    "warning",
                    "a timestamp in the future keeps records from being deleted by retention.ms",
                    replica.topic_partition,
                    path=segment.stem + LOG,
                    why=f"the newest timestamp, {segment.max_timestamp}, is {ahead_h} h ahead",
                    remedy="DeleteRecords removes the records; a smaller "
                    "message.timestamp.after.max.ms refuses such timestamps",
                )
            )

    def stop(self) -> None:
        """Open no more. `advance` still deletes what is to go."""
        self.is_stopping = True

    def is_hosted(self, replica: Replica) -> bool:
        """Whether this very replica is still the one that requests see."""
        return self.logs.is_hosted(replica)

    def unhosted_high_watermarks(self, folder: LogFolder) -> dict[TopicPartition, int]:
        """As the last process knew them, of partitions that are not open yet, or offline."""
        known = folder.high_watermarks
        unhosted = (*self.logs.found, *self._partitions.offline)
        return {place: known[place] for place in unhosted if place in known}

    def high_watermarks(self, folder: LogFolder) -> dict[TopicPartition, int]:
        """Those of a folder's partitions, also of those that are not open."""
        offsets = self.unhosted_high_watermarks(folder)
        for replica in self._partitions:
            if replica.folder == folder.path:
                offsets[replica.topic_partition] = replica.high_watermark
        return offsets

    def may_be_marked_clean(self, folder: LogFolder) -> bool:
        """Whether a folder that is closed in order may be marked as clean."""
        found = chain.from_iterable(self.logs.found.values())
        has_unread = any(each.path == folder.path for each in found)
        return self.folders.may_be_marked_clean(folder, has_unread=has_unread)

    def close(self, folder: LogFolder) -> None:
        """End an orderly stop: close a folder, without the marker where the next process has to
        check a log in it. May raise StorageFault."""
        if not self.may_be_marked_clean(folder):
            folder.close_unmarked()
            return
        epoch = self._broker.broker_epoch
        # A process that was never registered leaves what the last clean stop has said.
        folder.close(broker_epoch=self.previous_epoch if epoch < 0 else epoch)

    # Following an image.

    def _open_folders(self) -> Iterator[None]:
        for path in self._partitions.folders:
            if path not in self._partitions.offline_folders:
                self._effects.append(OpenFolder(path))
                yield

    def _steps(self, image: MetadataImage, delta: MetadataDelta | None) -> Iterator[None]:
        """The difference between an image and what is hosted, a piece at a time."""
        for topic in () if delta is None else delta.deleted_topics:
            self.logs.delete_offline(topic.topic_id)
        plan = self._partitions.plan(image, delta, broker_epoch=self._broker.broker_epoch)
        for replica in plan.drop:
            self.logs.leave(replica, HostedEvent.REMOVE)
            self._effects.append(DeleteLog(replica.folder, replica.topic_partition))
            yield
        if plan.drop:
            self.folders.checkpoint()  # nothing is promised for them any more
        updates = sorted(plan.update, key=lambda each: each[0].topic_partition)
        reconfigured = set(self._reconfigured(image, delta))
        for replica, state in updates:
            # settings and state in one piece: what only one of them allows is not committed
            if replica in reconfigured:
                self._configure(replica, image)
            replica.take_state(state)
            replica.advance()  # a state that is older than what is known changes nothing itself
            self.logs.touch(replica.topic_partition)
            yield
        for replica in sorted(
            reconfigured.difference(each for each, _ in updates),
            key=lambda each: each.topic_partition,
        ):
            self._configure(replica, image)
            if replica.advance():
                self._broker.changed[replica.topic_partition] = None
            yield
        for assignment in sorted(plan.create, key=lambda each: each.topic_partition):
            if self.is_stopping:
                return  # the next start opens it; a deletion it would not know of
            is_new = delta is not None and assignment.state.partition_epoch == 0
            self.logs.host(image, assignment, is_new=is_new)
            yield
        if delta is None:
            self.logs.sort_out_found(image)

    def _reconfigured(self, image: MetadataImage, delta: MetadataDelta | None) -> list[Replica]:
        """Replicas whose effective configuration this change may have touched."""
        if self._config is not self._broker.config:
            self._config = self._broker.config
            return list(self._partitions)
        if delta is None:
            return []
        topics = [name for kind, name in sorted(delta.changed_configs) if kind == RESOURCE_TOPIC]
        hosted = self._partitions.by_name
        return [replica for topic in topics for replica in hosted.get(topic, {}).values()]

    def _configure(self, replica: Replica, image: MetadataImage) -> None:
        config = self.logs.topic_config(image, replica.topic_partition.topic)
        replica.log.config = log_config(config, self._broker.config)
        replica.take_config(config)
        self.logs.note_config(replica)

    # As time passes.

    def _flush_late(self, wall_ms: int) -> Iterator[None]:
        """Have logs synced whose flush.ms is over."""
        for number, replica in enumerate(list(self.logs.flushed_late.values())):
            if number % LOOKED_AT_ONCE == 0:
                yield
            if self.is_hosted(replica) and replica.log.sync_due(wall_ms):
                self._broker.unsynced.add(replica.topic_partition)
        self._is_flushing = False

    def retry_roomless(self) -> None:
        """Have what a full disk kept from being opened tried again."""
        if self._partitions.roomless and not self._work:
            self._work.append(self._roomless(self._broker.image))

    def _roomless(self, image: MetadataImage) -> Iterator[None]:
        for place in self.logs.waiting():
            changed = {self._partitions.offline[place]: (place.partition,)}
            yield from self._steps(image, MetadataDelta(changed_partitions=changed))

    def standing(self, place: TopicPartition) -> HostedState:
        """How a partition stands here now."""
        return self.logs.standing(place)
