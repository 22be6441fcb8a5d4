"""The logs of one simulated broker on its simulated disks.

What: performs what `core/broker/hosting` decides, as `server/partitions.py` and its neighbours do
on a machine. An image is followed at once. A sync takes its virtual time. Rule kept: nothing here
decides; only input and output differ from a server's. Not here: what is hosted where.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from anabranch.core.broker.hosting import effects as does
from anabranch.core.broker.hosting import events
from anabranch.core.broker.hosting.hosting import Hosting
from anabranch.core.broker.hosting.outcomes import folder_opened, log_opened, refusal
from anabranch.core.errors import StorageFault
from anabranch.core.log.logs import LogFolder
from anabranch.core.step import InOrder
from anabranch.sim.cleaner import Cleaner

if TYPE_CHECKING:
    from anabranch.core.metadata.following.effects import Act
    from anabranch.core.types import TopicPartition
    from anabranch.sim.node_life import NodeLife

SYNC_US = (200, 2_000)
"""What an fdatasync takes on a healthy disk."""


class WatchedFolder(LogFolder):
    """A log folder that says when a log is about to get shorter."""

    def __init__(self, node: NodeLife, path: str) -> None:
        self._node = node
        super().__init__(node.disk, path)

    def _before_truncation(self, key: TopicPartition, end_offset: int) -> None:
        log = self.logs.get(key)
        if log is not None:
            self._node.cluster.tell_truncated(self._node.node_id, key, log.end_offset, end_offset)
        super()._before_truncation(key, end_offset)


class HostingPerformer:
    """One broker's logs. One a life of a node."""

    def __init__(self, node: NodeLife) -> None:
        self.node = node
        self.world = node.cluster.world
        self.broker = node.broker
        self.machine = Hosting(node.broker)
        self.folders = self.machine.folders.by_path
        self.cleaner = Cleaner(
            node,
            self.machine.cleaner,
            self.perform,
            partial(node.cluster.tell_compacted, node.node_id),
            partial(node.cluster.tell_pass, node.node_id),
        )
        self._random = self.world.random(f"{node.name}/disk-time")
        self._perform = InOrder(self.machine.take_effects, self._perform_one)
        self.broker.partitions.folders = list(node.folders)
        self.broker.partitions.directory_ids = node.directory_ids

    @property
    def flushes_late(self) -> bool:
        """Whether a hosted log has `flush.ms`, or a partition waits for space or for a move."""
        partitions = self.broker.partitions
        return bool(
            self.machine.logs.flushed_late
            or self.machine.moves.is_busy
            or partitions.full_folders
            or partitions.roomless
        )

    # What the node calls.

    def publish(self, moved: Act) -> list[TopicPartition]:
        """Follow a new image; which partitions were touched."""
        image = moved.image
        self.machine.follow(image, moved.published, moved.deleted_before, moved.deleted_ids)
        self._run()
        self.broker.image = image
        if self.machine.logs.compacted:
            self.cleaner.wake()
        return self.machine.take_touched()

    def take_faults(self) -> None:
        """Act on the storage faults that requests ran into."""
        self.machine.take_faults(self.world.steady_ms)
        self._perform()
        self._tell_touched()

    def start_rounds(self) -> None:
        """Begin a sync for every partition in `broker.unsynced`."""
        self.machine.start_syncs()
        self._perform()
        self._tell_touched()

    def tick(self) -> None:
        """Do what time makes due."""
        self.machine.tick(self.world.steady_ms, self.world.now_ms)
        self._run()
        self._tell_touched()

    def perform(self) -> None:
        """Do what the cleaner wants done."""
        self._perform()
        self._tell_touched()

    def close(self) -> None:
        """The end of an orderly stop: sync and close everything, leave the clean markers."""
        self.machine.stop()
        self._run()
        for folder in self.machine.folders.working():
            self._perform_one(does.SaveHighWatermarks(folder.path))
        self._perform()
        for folder in self.folders.values():
            try:
                self.machine.close(folder)
            except StorageFault as fault:
                self.world.note("offline", self.node.name, f"{folder.path}: {fault}")

    # Performing.

    def _run(self) -> None:
        self._perform()
        while self.machine.advance():
            self._perform()

    def _tell_touched(self) -> None:
        touched = self.machine.take_touched()
        if touched:
            self.node.lost(touched)

    def _answer(self, event: events.Event) -> None:
        self.machine.step(event, self.world.steady_ms)
        self._perform()

    def _attempt(self, path: str, act: Callable[[], object]) -> None:
        """Do something in a folder; what its disk refuses is told to the machine."""
        try:
            act()
        except StorageFault as fault:
            self._answer(refusal(path, fault))

    def _perform_one(self, effect: does.Effect) -> None:
        node, disk = self.node, self.node.disk
        match effect:
            case does.OpenFolder(path):
                self._answer(folder_opened(path, lambda: self._open_folder(path)))
            case does.OpenLog(path) | does.CreateLog(path):
                self._open(effect, self.folders[path])
            case does.RemoveLeftover(path, place):
                self._attempt(path, lambda: disk.remove_tree(f"{path}/{place}"))
            case does.SetAside(path, place):
                unique = self._unique()
                self._attempt(path, lambda: self.folders[path].set_aside(place, unique=unique))
            case does.SettleNames(path):
                self._attempt(path, self.folders[path].settle_names)
            case does.DeleteLog(path, place):
                unique, now_ms = self._unique(), self.world.now_ms
                self._attempt(
                    path,
                    lambda: self.folders[path].delete_log(place, unique=unique, now_ms=now_ms),
                )
            case does.Checkpoint(path):
                self._attempt(path, self.folders[path].checkpoint)
            case does.SaveHighWatermarks(path):
                self._attempt(path, lambda: self._save_high_watermarks(path))
            case does.RemoveDeleted(path):
                now_ms = self.world.now_ms
                self._attempt(path, lambda: self.folders[path].remove_deleted(now_ms))
            case does.SyncLog():
                delay_us = self._random.randint(*SYNC_US) + node.disk_delay_us
                self.world.after_in(node, delay_us, self._synced, effect)
            case does.PrepareMove():
                delay_us = self._random.randint(*SYNC_US) + node.disk_delay_us
                self.world.after_in(node, delay_us, self._move_prepared, effect)
            case does.KeepReserve(path, size_bytes):
                self._attempt(path, lambda: disk.reserve(path, size_bytes))
            case does.GiveBack(path):
                disk.give_back(path)
            case does.LookForRoom(path):
                self._attempt(path, lambda: self._look(path))
            case does.TakeReserve(path, size_bytes):
                self._reserve(path, size_bytes)
            case does.CleanLogs():
                for replica in list(self.broker.partitions):
                    known = len(replica.log.producers)
                    while (cold := self.machine.clean_one(replica, self.world.now_ms)) is not None:
                        cold.warm()
                    if len(replica.log.producers) < known:
                        self.world.note("forgotten", node.name, str(replica.topic_partition))
                self.machine.take_faults(self.world.steady_ms)
            case does.TellController():
                node.session.beat_now()
            case does.Ready():
                node.later(0, node.session.logs_open)
            case does.Stop(why):
                node.stop_because(why)
            case does.Report(_, sentence):
                text = f"{sentence}: {effect.place or effect.path} {effect.why}"
                self.world.note("hosting", node.name, text.rstrip())
            case does.TellHosted() | does.TellUnusable():
                node.tell_of_folders(effect)

    def _open_folder(self, path: str) -> LogFolder:
        if path not in self.node.session.directories:
            raise StorageFault(f"{path}: its disk was broken when the process began")
        return WatchedFolder(self.node, path)

    def _open(self, effect: does.OpenLog | does.CreateLog, folder: LogFolder) -> None:
        opened = log_opened(effect, folder, self.world.now_ms)
        if isinstance(effect, does.OpenLog) and isinstance(opened, events.LogOpened):
            self.world.note(
                "opened", self.node.name, str(effect.place),
                end=opened.log.end_offset, cut_bytes=opened.log.recovery.cut_bytes,
            )  # fmt: skip
        self._answer(opened)

    def _unique(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def _save_high_watermarks(self, path: str) -> None:
        folder = self.folders[path]
        folder.checkpoint_high_watermarks(self.machine.high_watermarks(folder))

    def _look(self, path: str) -> None:
        self._answer(events.FreeSeen(path, self.node.disk.free_bytes(path)))

    def _reserve(self, path: str, size_bytes: int) -> None:
        try:
            self.node.disk.reserve(path, size_bytes)
        except StorageFault:
            self._answer(events.NotReserved(path))
        else:
            self._answer(events.Reserved(path))

    def _move_prepared(self, asked: does.PrepareMove) -> None:
        fault: StorageFault | None = None
        try:
            for file in asked.files:
                file.sync()
        except StorageFault as problem:
            fault = problem
        self.node.begin()
        self._answer(events.MovePrepared(fault, self.world.now_ms))
        self._run()
        self._tell_touched()
        self.node.settle()

    def _synced(self, asked: does.SyncLog) -> None:
        fault: StorageFault | None = None
        try:
            for file in asked.files:
                file.sync()
        except StorageFault as problem:
            fault = problem
        self.node.begin()
        self._answer(events.SyncEnded(asked, fault))
        self._tell_touched()
        self.node.settle()
