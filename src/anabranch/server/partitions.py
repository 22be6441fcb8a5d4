"""The shell around the replicas that this broker hosts: it opens, creates and deletes their logs.

What: `publish` takes each new metadata image, compares it with what is hosted
(`core.replication.partitions.plan`), and does the difference in small steps: the first at once,
the others in slices of a few milliseconds on the loop, so that a topic with thousands of partitions
holds nobody up.

Rules kept: deltas are applied in their order; a folder is opened (and its clean marker taken away)
only when the first image arrives; a log that is rotten takes its partition offline, a disk that
fails its whole folder, never the process while another folder works; a folder whose topic the
metadata does not know is left alone. Not here: timers and checkpoints (`upkeep.py`), flush rounds
(`flush.py`), locks (`folders.py`).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from anabranch.core.api.context import Broker
from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log.files import DiskFull, Files
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.metadata.image import (
    RESOURCE_TOPIC,
    MetadataDelta,
    MetadataImage,
)
from anabranch.core.replication.partitions import Assignment
from anabranch.core.replication.replica import Replica
from anabranch.core.settings.topic import TopicConfig, effective_topic_config, log_config
from anabranch.core.types import CLUSTER_METADATA_TOPIC, TopicId, TopicPartition
from anabranch.server.clocks import steady_ms
from anabranch.server.flush import sync_logs
from anabranch.server.logs import logger
from anabranch.server.room import Rooms

LOG = logger("partitions")

FIRST_SLICE_S = 0.02
"""What `publish` itself may take: enough for a topic of ordinary size to be ready at once."""
SLICE_S = 0.005
"""What each later slice may take from the loop."""


class PartitionShell:
    """One broker's logs on its disks.

    `on_changed` is called after keys were put into `broker.changed` outside of a request;
    `on_fatal` with a sentence when no folder is left to work with, or the metadata is not followed.
    """

    def __init__(
        self,
        broker: Broker,
        files: Files,
        folders: Sequence[str],
        *,
        clock_ms: Callable[[], int],
    ) -> None:
        self.on_changed: Callable[[], None] | None = None
        self.on_fatal: Callable[[str], None] | None = None
        self.on_hosted: Callable[[Replica, bool], None] | None = None
        """Called with each replica that was opened, and whether its log was there before."""
        self.on_folder_failed: Callable[[], None] | None = None
        self.folders: dict[str, LogFolder] = {}
        self.rooms = Rooms(files, broker.partitions, self.folders)
        self._broker = broker
        self._files = files
        self._clock_ms = clock_ms
        self._found: dict[TopicPartition, tuple[LogFolder, TopicId | None]] = {}
        self._rotten: set[str] = set()
        self._work: deque[Iterator[None]] = deque()
        self._continuation: asyncio.Handle | None = None
        self._settled: list[asyncio.Future[None]] = []
        self._config = broker.config
        self._opened = self._stopping = False
        broker.partitions.folders = list(folders)

    # Following the metadata.

    def publish(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """Follow a new image; `delta` None stands for everything in it."""
        if self._stopping:
            return  # the next start follows it
        self._open_folders()
        self._begin(self._steps(image, delta))
        self._broker.image = image

    def _begin(self, work: Iterator[None]) -> None:
        self._work.append(work)
        self._run_slice(FIRST_SLICE_S)
        if self._work and self._continuation is None:
            self._continue_soon()

    async def settled(self) -> None:
        """Wait until everything that was published is done."""
        if self._work:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settled.append(waiter)
            await waiter

    def _continue_soon(self) -> None:
        self._continuation = asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._continuation = None
        try:
            self._run_slice(SLICE_S)
        except Exception as fault:
            if self.on_fatal is None:
                raise
            self.on_fatal(f"following the metadata failed: {type(fault).__name__}: {fault}")
            return
        self.tell_changed()
        if self._work:
            self._continue_soon()
            return
        for waiter in self._settled:
            if not waiter.done():
                waiter.set_result(None)
        self._settled.clear()

    def _run_slice(self, budget_s: float) -> None:
        until = time.perf_counter() + budget_s
        while self._work:
            try:
                next(self._work[0])
            except StopIteration:
                self._work.popleft()
            if time.perf_counter() >= until:
                return

    def _steps(self, image: MetadataImage, delta: MetadataDelta | None) -> Iterator[None]:
        """The difference between an image and what is hosted, a piece at a time."""
        for topic in () if delta is None else delta.deleted_topics:
            self._delete_offline(topic.topic_id)
        plan = self._broker.partitions.plan(image, delta, broker_epoch=self._broker.broker_epoch)
        for replica in plan.drop:
            self._delete(replica)
            yield
        if plan.drop:
            self.each_folder(LogFolder.checkpoint)  # nothing is promised for them any more
        for replica in self._reconfigured(image, delta):
            self._configure(replica, self._topic_config(image, replica.topic_partition.topic))
            yield
        for replica, state in plan.update:
            replica.take_state(state)
            self._moved(replica.topic_partition)
            yield
        for assignment in plan.create:
            if self._stopping:
                return  # the next start opens it; a deletion it would not know of
            is_new = delta is not None and assignment.state.partition_epoch == 0
            self._host(image, assignment, is_new=is_new)
            yield
        if delta is None:
            self._sort_out_found(image)

    def _reconfigured(self, image: MetadataImage, delta: MetadataDelta | None) -> list[Replica]:
        """Replicas whose effective configuration this change may have touched."""
        if self._config is not self._broker.config:
            self._config = self._broker.config
            return list(self._broker.partitions)
        if delta is None:
            return []
        topics = [name for kind, name in sorted(delta.changed_configs) if kind == RESOURCE_TOPIC]
        hosted = self._broker.partitions.by_name
        return [replica for topic in topics for replica in hosted.get(topic, {}).values()]

    def _topic_config(self, image: MetadataImage, topic: str) -> TopicConfig:
        return effective_topic_config(image, topic, self._broker.config)

    def _configure(self, replica: Replica, config: TopicConfig) -> None:
        replica.log.config = log_config(config, self._broker.config)
        replica.take_config(config)
        if replica.advance():
            self._broker.changed.add(replica.topic_partition)

    # One partition.

    def _host(self, image: MetadataImage, assignment: Assignment, *, is_new: bool) -> None:
        place, partitions = assignment.topic_partition, self._broker.partitions
        folder, topic_id = self._found.pop(place, (None, None))
        if folder is not None and topic_id not in (None, assignment.topic_id):
            self._set_aside(folder, place)
            folder = None
        is_here = folder is not None
        if not is_here and not is_new and self._is_missing(assignment):
            partitions.give_up(place, assignment.topic_id)
            return
        folder = folder or self._roomiest()
        config = self._topic_config(image, place.topic)
        if folder is None or folder.fault is not None:
            partitions.give_up(place, assignment.topic_id)
            return
        try:
            log = self._open(folder, assignment, config, is_here=is_here)
        except CorruptLog as fault:
            LOG.error("a partition is offline: its log is rotten", partition=place, why=str(fault))
            self._rotten.add(folder.path)
            partitions.give_up(place, assignment.topic_id, is_rotten=True)
            return
        except DiskFull as fault:
            self.rooms.refused(folder, fault)
            if place not in partitions.roomless:
                LOG.error("a partition waits for room", partition=place, why=str(fault))
            if is_here:
                self._found[place] = (folder, topic_id)
            partitions.wait_for_room(place, assignment.topic_id)
            return
        except StorageFault as fault:
            partitions.give_up(place, assignment.topic_id)
            self.folder_failed(folder.path, fault)
            return
        replica = Replica(
            place,
            assignment.topic_id,
            log,
            config,
            broker_id=self._broker.broker_id,
            folder=folder.path,
            high_watermark=folder.high_watermarks.get(place, 0) if is_here else 0,
        )
        replica.take_state(assignment.state)
        self._broker.partitions.host(replica)
        self._moved(place)
        if self.on_hosted is not None:
            self.on_hosted(replica, is_here)
        if replica.flushed_counts and log.end_offset > log.flushed_offset:
            self._broker.unsynced.add(place)  # what recovery found counts again once it is safe

    def host_roomless(self) -> None:
        """Try again what a full disk kept from being opened, until the first that it still does."""
        if self._broker.partitions.roomless and not self._work:
            self._begin(self._roomless(self._broker.image))

    def _roomless(self, image: MetadataImage) -> Iterator[None]:
        partitions = self._broker.partitions
        for place in sorted(partitions.roomless):
            changed = {partitions.offline[place]: (place.partition,)}
            yield from self._steps(image, MetadataDelta(changed_partitions=changed))
            if place in partitions.roomless:
                return

    def _open(
        self, folder: LogFolder, assignment: Assignment, config: TopicConfig, *, is_here: bool
    ) -> Log:
        place, topic_id, _ = assignment
        settings = log_config(config, self._broker.config)
        now_ms = self._clock_ms()
        if not is_here:
            if folder.room.is_full:
                raise folder.room.refusal(place)
            if self._files.exists(f"{folder.path}/{place}"):
                self._set_aside(folder, place)
            try:
                return folder.create_log(place, topic_id, settings, now_ms=now_ms)
            except DiskFull:
                self._files.remove_tree(f"{folder.path}/{place}")  # what there was room for
                raise
        log = folder.open_log(place, topic_id, settings, now_ms=now_ms)
        if log.recovery.cut_bytes:
            LOG.warning(
                "cut what a crash left unfinished", partition=place, bytes=log.recovery.cut_bytes
            )
        return log

    def _is_missing(self, assignment: Assignment) -> bool:
        """Whether a log that was not found may not begin anew now; says why."""
        place, _, state = assignment
        promised = {folder.path: folder.promised(place) for folder in self.working()}
        why = self._broker.partitions.why_not_anew(assignment, promised)
        if why:
            LOG.error("a partition is offline: its log is missing", partition=place, why=why)
        elif any(promised.values()):
            LOG.warning("a log that is gone is copied anew", partition=place, leader=state.leader)
        return bool(why)

    def _roomiest(self) -> LogFolder | None:
        """The working folder with the fewest logs, as Kafka chooses; a full one last."""
        return min(
            self.working(),
            key=lambda folder: (folder.room.is_full, len(folder.logs)),
            default=None,
        )

    def _delete(self, replica: Replica) -> None:
        place = replica.topic_partition
        self._broker.partitions.drop(replica)
        self._moved(place)
        self._delete_log(self.folders[replica.folder], place)

    def _delete_log(self, folder: LogFolder, place: TopicPartition) -> None:
        try:
            folder.delete_log(place, unique=uuid.uuid4().hex, now_ms=self._clock_ms())
        except StorageFault as fault:
            self.folder_failed(folder.path, fault)

    def _delete_offline(self, topic_id: TopicId) -> None:
        """Of a deleted topic: the logs that are not open, in folders that work."""
        for place, offline_id in tuple(self._broker.partitions.offline.items()):
            for folder in self.working() if offline_id == topic_id else ():
                self._found.pop(place, None)
                self._delete_log(folder, place)

    def _set_aside(
        self, folder: LogFolder, place: TopicPartition, what: str = "another topic of that name"
    ) -> None:
        """A log that does not belong here: keep its bytes under another name."""
        aside = f"{folder.path}/{place}.{uuid.uuid4().hex}-stray"
        LOG.warning(f"set aside the log of {what}", partition=place, path=aside)
        try:
            self._files.rename(f"{folder.path}/{place}", aside)
        except StorageFault as fault:
            self.folder_failed(folder.path, fault)

    def _sort_out_found(self, image: MetadataImage) -> None:
        """What lies in the folders and is not hosted: a replica that was moved away while this
        broker was stopped is set aside and not removed, since metadata may have been restored from
        an old copy. What the metadata does not know stays where it is."""
        for place, (folder, topic_id) in sorted(self._found.items()):
            topic = image.topic(place.topic)
            known = image.partition(place.topic, place.partition)
            if known and topic is not None and topic_id == topic.topic_id:
                if not self._broker.partitions.is_placed_here(known):
                    del self._found[place]
                    self._set_aside(folder, place, "a replica that was moved away")
                continue
            why = "is of another topic" if known else "is not in the metadata"
            LOG.warning(f"left alone a log whose partition {why}", path=f"{folder.path}/{place}")

    # Folders.

    def _open_folders(self) -> None:
        if self._opened:
            return
        self._opened = True
        partitions = self._broker.partitions
        for path in partitions.folders:
            if path in partitions.offline_folders:
                continue
            try:
                folder = self.folders[path] = LogFolder(self._files, path)
                self.rooms.opened(folder)
                for place, topic_id in folder.partitions():
                    if place.topic != CLUSTER_METADATA_TOPIC:
                        self._found.setdefault(place, (folder, topic_id))
            except StorageFault as fault:
                self.folder_failed(path, fault)

    def folder_failed(self, path: str, fault: StorageFault) -> None:
        """Take a folder offline with every partition in it, for the rest of this process's life."""
        partitions = self._broker.partitions
        if path in partitions.offline_folders:
            return
        LOG.error("a log folder is offline", path=path, why=str(fault))
        partitions.offline_folders.add(path)
        if path in self.folders:
            self.folders[path].fail(fault)
        for replica in [each for each in partitions if each.folder == path]:
            partitions.take_offline(replica)
            self._moved(replica.topic_partition)
        if self.on_fatal is not None and partitions.offline_folders >= set(partitions.folders):
            self.on_fatal(f"no folder of log.dirs works any more; the last one: {fault}")
        if self.on_folder_failed is not None:
            self.on_folder_failed()
        self.tell_changed()

    def take_faults(self) -> None:
        """Act on the storage faults that requests ran into."""
        faults = self._broker.faults
        while faults:
            replica, fault = faults.pop()
            if not self.is_hosted(replica):
                continue  # deleted meanwhile, and its files with it; or offline already
            if isinstance(fault, DiskFull):
                self.rooms.refused(self.folders[replica.folder], fault)
            elif isinstance(fault, CorruptLog):
                self._partition_failed(replica, fault)
            else:
                self.folder_failed(replica.folder, fault)

    def is_hosted(self, replica: Replica) -> bool:
        """Whether this very replica is still the one that requests see."""
        return self._broker.partitions.get(*replica.topic_partition) is replica

    def _partition_failed(self, replica: Replica, fault: CorruptLog) -> None:
        LOG.error(
            "a partition is offline: its log is rotten",
            partition=replica.topic_partition,
            why=str(fault),
        )
        self._rotten.add(replica.folder)
        self._broker.partitions.take_offline(replica, is_rotten=True)
        self._moved(replica.topic_partition)
        self.tell_changed()

    def _moved(self, place: TopicPartition) -> None:
        """A replica came, went, or has another leader or ISR: requests and replication follow."""
        self._broker.replication.follow((place,), steady_ms())
        self._broker.changed.add(place)

    def tell_changed(self) -> None:
        """Have those woken who wait for what changed outside of a request."""
        if self.on_changed is not None and (self._broker.changed or self._broker.unsynced):
            self.on_changed()

    def working(self) -> Iterable[LogFolder]:
        """The folders that have not failed."""
        return [folder for folder in self.folders.values() if folder.fault is None]

    def each_folder(self, act: Callable[[LogFolder], None]) -> None:
        """Do something with every folder that works; one that refuses goes offline."""
        for folder in self.working():
            try:
                act(folder)
            except DiskFull as fault:
                self.checkpoint_refused(folder, fault)
            except StorageFault as fault:
                self.folder_failed(folder.path, fault)

    def checkpoint_refused(self, folder: LogFolder, fault: DiskFull) -> None:
        """A checkpoint did not fit: the next time it finds the reserve."""
        LOG.error("a checkpoint was not written", path=folder.path, why=str(fault))
        self.rooms.refused(folder, fault)

    def unhosted_high_watermarks(self, folder: LogFolder) -> dict[TopicPartition, int]:
        """As the last process knew them, of partitions that are not open yet, or offline."""
        known = folder.high_watermarks
        unhosted = (*self._found, *self._broker.partitions.offline)
        return {place: known[place] for place in unhosted if place in known}

    def checkpoint_high_watermarks(self, folder: LogFolder) -> None:
        """Write the high watermarks of a folder's partitions, also of those not hosted yet."""
        offsets = self.unhosted_high_watermarks(folder)
        for replica in self._broker.partitions:
            if replica.folder == folder.path:
                offsets[replica.topic_partition] = replica.high_watermark
        folder.checkpoint_high_watermarks(offsets)

    # The end.

    async def stop(self) -> None:
        """Open no more, but delete what is to go; sync and close every log, write checkpoints and
        clean markers."""
        if self._continuation is not None:
            self._continuation.cancel()
        self._stopping = True
        while self._work:
            self._run_slice(FIRST_SLICE_S)
        self.each_folder(self.checkpoint_high_watermarks)
        for folder in self.folders.values():
            if folder.fault is None:
                try:
                    await sync_logs(folder)
                except StorageFault as fault:
                    self.folder_failed(folder.path, fault)
            try:
                self._close(folder)
            except StorageFault as fault:
                LOG.error("a folder was not closed in order", path=folder.path, why=str(fault))
        for waiter in self._settled:
            waiter.cancel()

    def _close(self, folder: LogFolder) -> None:
        """Close a folder; without the marker when a log in it has to be checked again."""
        unread = any(held is folder for held, _ in self._found.values())
        if folder.path not in self._rotten and (folder.clean or not unread):
            folder.close(broker_epoch=self._broker.broker_epoch)
            return
        for log in folder.logs.values():
            log.close(clean=folder.fault is None and log.fault is None)
        if folder.fault is None:
            folder.checkpoint()

    def statistics(self) -> dict[str, int]:
        """Counts for metrics and health."""
        partitions = self._broker.partitions
        return {
            "hosted": len(partitions),
            "leading": sum(replica.is_leader for replica in partitions),
            "offline": len(partitions.offline),
            "under_min_isr": sum(
                replica.is_leader and not replica.enough_in_sync for replica in partitions
            ),
            "pending_changes": len(self._work),
        }
