"""The logs of one made-up broker on its made-up disk: opened, created, deleted, synced.

What: `server/partitions.py`, `flush.py` and `upkeep.py` in the made-up world. `publish` compares a
new image with what is hosted (`core.replication.partitions.plan`) and does the difference at once.
A sync takes its virtual time, and what is appended meanwhile waits for the next one. Rules kept: a
log that is rotten takes its partition offline, a disk that fails its whole folder; a sync that
failed is never tried again. Not here: what is hosted where.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log.files import DiskFull, Syncable
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.upkeep import look_after
from anabranch.core.metadata.image import RESOURCE_TOPIC, MetadataDelta, MetadataImage
from anabranch.core.replication.partitions import Assignment
from anabranch.core.replication.replica import Replica
from anabranch.core.settings.topic import effective_topic_config, log_config
from anabranch.core.types import TopicId, TopicPartition
from anabranch.sim.cleaning import Cleaning

if TYPE_CHECKING:
    from anabranch.sim.node import SimNode

SYNC_US = (200, 2_000)
"""What an fdatasync takes on a healthy disk."""
NEVER_MS = 2**62


class WatchedFolder(LogFolder):
    """A log folder that says when a log is about to get shorter."""

    def __init__(self, node: SimNode, path: str) -> None:
        self._node = node
        super().__init__(node.disk, path)

    def _shorter_first(self, key: TopicPartition, end_offset: int) -> None:
        log = self.logs.get(key)
        if log is not None:
            self._node.cluster.tell_truncated(self._node, key, log.end_offset, end_offset)
        super()._shorter_first(key, end_offset)


class Hosting:
    """One broker's logs. One a life of a node."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.world = node.cluster.world
        self.broker = node.broker
        self.folders: dict[str, LogFolder] = {}
        self._found: dict[TopicPartition, tuple[LogFolder, TopicId | None]] = {}
        self._rotten: set[str] = set()
        self._syncing: set[TopicPartition] = set()
        self._again: dict[TopicPartition, None] = {}
        self._random = self.world.random(f"{node.name}/disk-time")
        self._config = self.broker.config
        self._opened = False
        self.cleaning = Cleaning(self)
        self.flushes_late = False
        """Whether a hosted log has `flush.ms`."""
        self.broker.partitions.folders = list(node.folders)

    # Following the metadata.

    def publish(self, image: MetadataImage, delta: MetadataDelta | None) -> list[TopicPartition]:
        """Follow a new image (`delta` None: everything in it); which partitions were touched."""
        self._open_folders()
        touched: list[TopicPartition] = []
        for topic in () if delta is None else delta.deleted_topics:
            self._delete_offline(topic.topic_id)
        plan = self.broker.partitions.plan(image, delta, broker_epoch=self.broker.broker_epoch)
        for replica in plan.drop:
            touched.append(replica.topic_partition)
            self._delete(replica)
        if plan.drop:
            self.each_folder(LogFolder.checkpoint)
        for replica in self._reconfigured(image, delta):
            self._configure(replica, image)
        for replica, state in sorted(plan.update, key=lambda entry: entry[0].topic_partition):
            replica.take_state(state)
            self.broker.changed.add(replica.topic_partition)
            touched.append(replica.topic_partition)
        for assignment in sorted(plan.create, key=lambda entry: entry.topic_partition):
            is_new = delta is not None and assignment.state.partition_epoch == 0
            self._host(image, assignment, is_new=is_new)
            touched.append(assignment.topic_partition)
        self.broker.image = image
        return touched

    def _reconfigured(self, image: MetadataImage, delta: MetadataDelta | None) -> list[Replica]:
        if self._config is not self.broker.config:
            self._config = self.broker.config
            return list(self.broker.partitions)
        if delta is None:
            return []
        topics = [name for kind, name in sorted(delta.changed_configs) if kind == RESOURCE_TOPIC]
        hosted = self.broker.partitions.by_name
        return [replica for topic in topics for replica in hosted.get(topic, {}).values()]

    def _configure(self, replica: Replica, image: MetadataImage) -> None:
        config = effective_topic_config(image, replica.topic_partition.topic, self.broker.config)
        replica.log.config = log_config(config, self.broker.config)
        self._note_flushes(replica.log)
        replica.take_config(config)
        if replica.advance():
            self.broker.changed.add(replica.topic_partition)

    def _note_flushes(self, log: Log) -> None:
        if log.config.flush_interval_ms < NEVER_MS:
            self.flushes_late = True
        if log.config.compacted:
            self.cleaning.wake()

    # One partition.

    def _host(self, image: MetadataImage, assignment: Assignment, *, is_new: bool) -> None:
        place, offline = assignment.topic_partition, self.broker.partitions.offline
        folder, topic_id = self._found.pop(place, (None, None))
        if folder is not None and topic_id not in (None, assignment.topic_id):
            self._set_aside(folder, place)
            folder = None
        is_here = folder is not None
        if not is_here and not is_new and self._is_missing(assignment):
            self.world.note("offline", self.node.name, f"{place}: its log is missing")
            offline[place] = assignment.topic_id
            return
        folder = folder or self._roomiest()
        if folder is None or folder.fault is not None:
            offline[place] = assignment.topic_id
            return
        try:
            log = self._open(folder, image, assignment, is_here=is_here)
        except (CorruptLog, DiskFull) as fault:
            self.world.note("offline", self.node.name, str(fault))
            self._rotten.add(folder.path)
            offline[place] = assignment.topic_id
        except StorageFault as fault:
            offline[place] = assignment.topic_id
            self.folder_failed(folder.path, fault)
        else:
            self._opened_log(image, assignment, folder, log, is_here=is_here)

    def _opened_log(
        self,
        image: MetadataImage,
        assignment: Assignment,
        folder: LogFolder,
        log: Log,
        *,
        is_here: bool,
    ) -> None:
        place = assignment.topic_partition
        self._note_flushes(log)
        replica = Replica(
            place,
            assignment.topic_id,
            log,
            effective_topic_config(image, place.topic, self.broker.config),
            broker_id=self.node.node_id,
            folder=folder.path,
            high_watermark=folder.high_watermarks.get(place, 0) if is_here else 0,
        )
        replica.take_state(assignment.state)
        self.broker.partitions.host(replica)
        self.broker.changed.add(place)
        if replica.flushed_counts and log.end_offset > log.flushed_offset:
            self.broker.unsynced.add(place)

    def _open(
        self, folder: LogFolder, image: MetadataImage, assignment: Assignment, *, is_here: bool
    ) -> Log:
        place, topic_id, _ = assignment
        config = effective_topic_config(image, place.topic, self.broker.config)
        settings = log_config(config, self.broker.config)
        now_ms = self.world.now_ms
        if not is_here:
            if self.node.disk.exists(f"{folder.path}/{place}"):
                self._set_aside(folder, place)
            return folder.create_log(place, topic_id, settings, now_ms=now_ms)
        log = folder.open_log(place, topic_id, settings, now_ms=now_ms)
        self.world.note(
            "opened", self.node.name, str(place),
            end=log.end_offset, cut_bytes=log.recovery.cut_bytes,
        )  # fmt: skip
        return log

    def _is_missing(self, assignment: Assignment) -> bool:
        """Whether a log that was not found may not begin anew now."""
        place = assignment.topic_partition
        promised = {folder.path: folder.promised(place) for folder in self.working()}
        return bool(self.broker.partitions.why_not_anew(assignment, promised))

    def _roomiest(self) -> LogFolder | None:
        return min(self.working(), key=lambda folder: len(folder.logs), default=None)

    def _delete(self, replica: Replica) -> None:
        place = replica.topic_partition
        self.broker.partitions.drop(replica)
        self.broker.changed.add(place)
        self._delete_log(self.folders[replica.folder], place)

    def _delete_log(self, folder: LogFolder, place: TopicPartition) -> None:
        try:
            folder.delete_log(place, unique=self._unique(), now_ms=self.world.now_ms)
        except StorageFault as fault:
            self.folder_failed(folder.path, fault)

    def _unique(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def _delete_offline(self, topic_id: TopicId) -> None:
        for place, offline_id in tuple(self.broker.partitions.offline.items()):
            for folder in self.working() if offline_id == topic_id else ():
                self._delete_log(folder, place)

    def _set_aside(self, folder: LogFolder, place: TopicPartition) -> None:
        aside = f"{folder.path}/{place}.{self._unique()}-stray"
        try:
            self.node.disk.rename(f"{folder.path}/{place}", aside)
        except StorageFault as fault:
            self.folder_failed(folder.path, fault)

    # Folders.

    def _open_folders(self) -> None:
        if self._opened:
            return
        self._opened = True
        for path in self.broker.partitions.folders:
            try:
                folder = self.folders[path] = WatchedFolder(self.node, path)
                for place, topic_id in folder.partitions():
                    self._found.setdefault(place, (folder, topic_id))
            except StorageFault as fault:
                self.folder_failed(path, fault)

    def folder_failed(self, path: str, fault: StorageFault) -> None:
        """Take a folder offline with every partition in it, for the rest of this life."""
        partitions = self.broker.partitions
        if path in partitions.offline_folders:
            return
        self.world.note("offline", self.node.name, f"folder {path}: {fault}")
        partitions.offline_folders.add(path)
        if path in self.folders:
            self.folders[path].fail(fault)
        for replica in [each for each in partitions if each.folder == path]:
            partitions.take_offline(replica)
            self.node.lost(replica.topic_partition)
        if partitions.offline_folders >= set(partitions.folders):
            self.node.stop_because(f"no folder of log.dirs works any more; the last one: {fault}")

    def take_faults(self) -> None:
        """Act on the storage faults that requests ran into."""
        faults = self.broker.faults
        while faults:
            replica, fault = faults.pop()
            place = replica.topic_partition
            if self.broker.partitions.get(*place) is not replica:
                continue
            if isinstance(fault, DiskFull):
                self._refused(self.folders[replica.folder], fault)
            elif isinstance(fault, CorruptLog):
                self.world.note("offline", self.node.name, str(fault))
                self._rotten.add(replica.folder)
                self.broker.partitions.take_offline(replica)
                self.node.lost(place)
            else:
                self.folder_failed(replica.folder, fault)

    def _refused(self, folder: LogFolder, fault: DiskFull) -> None:
        """A disk had no room for something."""
        self.world.note("full", self.node.name, str(fault))
        if folder.room.refused(self.world.steady_ms):
            self.broker.partitions.full_folders.add(folder.path)
            self.node.session.beat_now()

    def look_for_room(self) -> None:
        """Look whether full folders have room again."""
        now_ms, free_bytes = self.world.steady_ms, self.node.disk.free_bytes("")
        for path in sorted(self.broker.partitions.full_folders):
            room = self.folders[path].room
            if room.may_return(free_bytes, now_ms) and room.reserved(now_ms):
                self.broker.partitions.full_folders.discard(path)

    def working(self) -> list[LogFolder]:
        """The folders that have not failed."""
        return [folder for folder in self.folders.values() if folder.fault is None]

    def each_folder(self, act: Callable[[LogFolder], None]) -> None:
        """Do something with every folder that works; one that refuses goes offline."""
        for folder in self.working():
            try:
                act(folder)
            except DiskFull as fault:
                self.world.note("full", self.node.name, str(fault))
            except StorageFault as fault:
                self.folder_failed(folder.path, fault)

    # Sync rounds.

    def start_rounds(self) -> None:
        """Begin a sync for every partition in `broker.unsynced`."""
        unsynced = sorted(self.broker.unsynced)
        self.broker.unsynced.clear()
        for place in unsynced:
            if place in self._syncing:
                self._again[place] = None
            else:
                self._sync(place)

    @property
    def is_syncing(self) -> bool:
        """Whether something waits for the disk."""
        return bool(self._syncing)

    def _sync(self, place: TopicPartition) -> None:
        replica = self.broker.partitions.get(*place)
        if replica is None:
            return
        try:
            target = replica.log.sync_target()
        except StorageFault as fault:
            self.folder_failed(replica.folder, fault)
            return
        if target is None:
            return
        self._syncing.add(place)
        delay_us = self._random.randint(*SYNC_US) + self.node.disk_delay_us
        self.world.after_in(self.node, delay_us, self._synced, replica, *target)

    def _synced(self, replica: Replica, end_offset: int, files: tuple[Syncable, ...]) -> None:
        place = replica.topic_partition
        self._syncing.discard(place)
        fault: StorageFault | None = None
        try:
            for file in files:
                file.sync()
        except StorageFault as problem:
            fault = problem
        self.node.begin()
        self.node.replicating.touch()
        is_hosted = self.broker.partitions.get(*place) is replica
        if fault is not None and is_hosted:
            self.folder_failed(replica.folder, fault)
        elif fault is None and replica.synced(end_offset):
            self.broker.changed.add(place)
        if self._again.pop(place, self) is None:
            self.broker.unsynced.add(place)
        self.node.settle()

    # Time.

    def flush_due(self) -> None:
        """Have logs synced whose `flush.ms` is over."""
        for replica in self.broker.partitions:
            if replica.log.fault is None and replica.log.sync_due(self.world.now_ms):
                self.broker.unsynced.add(replica.topic_partition)

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks of every folder's partitions."""
        self.each_folder(self._checkpoint_high_watermarks)

    def _checkpoint_high_watermarks(self, folder: LogFolder) -> None:
        kept = {
            place: offset
            for place, offset in folder.high_watermarks.items()
            if place in self._found or place in self.broker.partitions.offline
        }
        for replica in self.broker.partitions:
            if replica.folder == folder.path:
                kept[replica.topic_partition] = replica.high_watermark
        folder.checkpoint_high_watermarks(kept)
        folder.remove_deleted(self.world.now_ms)

    def clean(self) -> None:
        """Roll segments that are too old, apply retention, forget idle producers."""
        now_ms = self.world.now_ms
        for replica in list(self.broker.partitions):
            is_cleaning = self.cleaning.is_cleaning(replica.topic_partition)
            known = len(replica.log.producers)
            try:
                if look_after(replica.log, now_ms, replica.high_watermark, is_cleaning=is_cleaning):
                    self.broker.changed.add(replica.topic_partition)
            except StorageFault as fault:
                self.broker.faults.append((replica, fault))
            if len(replica.log.producers) < known:
                self.world.note("forgotten", self.node.name, str(replica.topic_partition))
        self.take_faults()

    def close(self) -> None:
        """The end of an orderly stop: sync and close everything, leave the clean markers."""
        self.checkpoint_high_watermarks()
        for folder in self.folders.values():
            unread = any(held is folder for held, _ in self._found.values())
            try:
                if folder.path not in self._rotten and (folder.clean or not unread):
                    folder.close(broker_epoch=self.broker.broker_epoch)
                else:
                    for log in folder.logs.values():
                        log.close(clean=folder.fault is None and log.fault is None)
                    if folder.fault is None:
                        folder.checkpoint()
            except StorageFault as fault:
                self.world.note("offline", self.node.name, f"{folder.path}: {fault}")
