"""A broker whose hosting is performed over files in memory, on disks that fill up and fail."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from immutables import Map
from msgspec.structs import replace

from anabranch.core.access.authorize import AllowAll
from anabranch.core.api.context import Broker
from anabranch.core.api.fetch_sessions import FetchSessions
from anabranch.core.broker.hosting import effects as does
from anabranch.core.broker.hosting import events
from anabranch.core.broker.hosting.hosting import Hosting
from anabranch.core.errors import CorruptLog, StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.log.room import FULL_AT_LEAST_MS
from anabranch.core.metadata.image import (
    RESOURCE_TOPIC,
    BrokerImage,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.replication.partitions import Partitions
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.records import Record, build_batch

WALL_MS = 1_700_000_000_000
FOLDERS = ("/a", "/b", "/c")
HERE = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
WRITES = (does.OpenLog, does.CreateLog, does.Checkpoint, does.SaveHighWatermarks, does.KeepReserve)
ROT = CorruptLog("rot", path="", position=0, first_offset=0, last_offset=0)


class StuckFiles(MemoryFiles):
    """Files in folders of which some refuse that what lies in them gets another name."""

    def __init__(self, stuck: dict[str, str]) -> None:
        super().__init__()
        self.stuck = stuck

    def rename(self, source: str, target: str) -> None:
        path = source.rpartition("/")[0]
        if path in self.stuck:
            kind = DiskFull if self.stuck[path] == "full" else StorageFault
            raise kind(f"{path}: not renamed")
        super().rename(source, target)


class Stage:
    """One broker. `failed` and `full` are the folders whose disks refuse, `rotten` the partitions
    whose logs are damaged; `done` are the effects that were performed."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.full: set[str] = set()
        self.rotten: set[TopicPartition] = set()
        self.stuck: dict[str, str] = {}
        """Folders whose disks refuse to rename: "full" or "failed"."""
        self.files = StuckFiles(self.stuck)
        self.syncing: list[does.SyncLog] | None = None
        """Rounds that a test ends with `end_sync`; None: each ends at once."""
        self.topics: dict[str, TopicImage] = {}
        self.settings: dict[str, dict[str, str]] = {}
        """Topic -> what it is set to."""
        self.now_ms = self.number = 0
        self.start()

    def start(self) -> None:
        """A new process on the same disks, which has not seen an image yet."""
        self.broker = Broker(
            broker_id=1,
            broker_epoch=3,
            cluster_id="c",
            config=BrokerConfig.of({}),
            image=MetadataImage.empty(),
            partitions=Partitions(1),
            fetch_sessions=FetchSessions(10, Random(1)),
            authorizer=AllowAll(),
            allocate_producer_id=lambda: None,
        )
        self.partitions = self.broker.partitions
        self.partitions.folders = list(FOLDERS)
        self.hosting = Hosting(self.broker)
        self.done: list[does.Effect] = []

    # What the metadata says.

    @property
    def image(self) -> MetadataImage:
        return MetadataImage(
            topics_by_id=Map({topic.topic_id: topic for topic in self.topics.values()}),
            topic_ids_by_name=Map({topic.name: topic.topic_id for topic in self.topics.values()}),
            brokers=Map({1: BrokerImage(1, 3, bytes(16), Map())}),
            configs=Map(
                {(RESOURCE_TOPIC, name): Map(each) for name, each in self.settings.items()}
            ),
        )

    def create(self, name: str, partitions: int = 1) -> MetadataDelta:
        """A topic under a new id."""
        self.number += 1
        topic_id = TopicId(self.number.to_bytes(16, "big"))
        states = Map(dict.fromkeys(range(partitions), HERE))
        self.topics[name] = TopicImage(name, topic_id, states)
        return MetadataDelta(changed_partitions={topic_id: tuple(range(partitions))})

    def delete(self, name: str) -> MetadataDelta:
        return MetadataDelta(deleted_topics=(self.topics.pop(name),))

    def place(self, name: str, index: int, *broker_ids: int) -> MetadataDelta:
        """Give a partition to these brokers."""
        topic = self.topics[name]
        before = topic.partitions[index]
        state = replace(
            before,
            replicas=broker_ids,
            isr=broker_ids,
            leader=broker_ids[0],
            partition_epoch=before.partition_epoch + 1,
        )
        self.topics[name] = replace(topic, partitions=topic.partitions.set(index, state))
        return MetadataDelta(changed_partitions={topic.topic_id: (index,)})

    def publish(
        self,
        delta: MetadataDelta | None = None,
        *deleted_before: str,
        deleted_ids: Collection[TopicId] = (),
    ) -> None:
        """Follow what the metadata says now."""
        self.hosting.follow(self.image, delta, frozenset(deleted_before), frozenset(deleted_ids))
        self.run()
        self.broker.image = self.image

    # What the disks do.

    def tick(self, wait_ms: int = FULL_AT_LEAST_MS) -> None:
        """Time goes by."""
        self.now_ms += wait_ms
        self.hosting.tick(self.now_ms, WALL_MS + self.now_ms)
        self.run()

    def sync(self) -> None:
        """Sync what is to be synced."""
        self.hosting.start_syncs()
        self.run()

    def append(self, place: TopicPartition) -> None:
        """A record, which is to be synced."""
        batch = build_batch([Record(0, WALL_MS, b"k", b"v")])
        replica = self.partitions.get(*place)
        replica.append(batch, required_acks=1, now_ms=WALL_MS)
        self.broker.unsynced.add(place)

    def run(self) -> None:
        """Perform effects until nothing is left to do."""
        self.perform()
        while self.hosting.advance():
            self.perform()

    def perform(self) -> None:
        while found := self.hosting.take_effects():
            for effect in found:
                self.done.append(effect)
                event = self._outcome(effect)
                if event is not None:
                    self.hosting.step(event, self.now_ms)

    def _outcome(self, effect: does.Effect) -> events.Event | None:
        if isinstance(effect, does.SyncLog):
            if self.syncing is None:
                return self._synced(effect)
            self.syncing.append(effect)
            return None
        if isinstance(effect, does.PrepareMove):
            return self._prepared(effect)
        path = getattr(effect, "path", "")
        opens = isinstance(effect, does.OpenLog | does.CreateLog)
        fault = self._fault(effect, path) if path else None
        if fault is not None and not isinstance(effect, does.Report):
            if opens:
                return events.OpeningFailed(effect.place, fault)
            kind = events.Refused if isinstance(fault, DiskFull) else events.FolderFailed
            return kind(path, fault)
        try:
            return self._performed(effect, path)
        except DiskFull as refusal:
            return events.Refused(path, refusal)
        except StorageFault as failure:
            return events.FolderFailed(path, failure)

    def _prepared(self, asked: does.PrepareMove) -> events.MovePrepared:
        fault = StorageFault("no sync") if asked.path in self.failed else None
        if fault is None:
            for file in asked.files:
                file.sync()
        return events.MovePrepared(fault, WALL_MS + self.now_ms)

    def end_sync(self) -> None:
        """The oldest round that is under way ends, and its step with it."""
        self.hosting.step(self._synced(self.syncing.pop(0)), self.now_ms)
        self.run()
        self.sync()

    def _synced(self, asked: does.SyncLog) -> events.SyncEnded:
        is_failing = asked.replica.folder in self.failed
        return events.SyncEnded(asked, StorageFault("no sync") if is_failing else None)

    def _fault(self, effect: does.Effect, path: str) -> StorageFault | None:
        if path in self.failed:
            return StorageFault(f"{path}: no disk")
        if path in self.full and isinstance(effect, WRITES):
            return DiskFull(f"{path}: no room")
        if isinstance(effect, does.OpenLog) and effect.place in self.rotten:
            return ROT
        return None

    def _performed(self, effect: does.Effect, path: str) -> events.Event | None:
        folder = self.hosting.folders.by_path.get(path)
        match effect:
            case does.OpenFolder():
                folder = LogFolder(self.files, path)
                return events.FolderOpened(folder, folder.partitions(), 1 << 30)
            case does.OpenLog(_, place, topic_id, config):
                log = folder.open_log(place, topic_id, config, now_ms=WALL_MS)
                return events.LogOpened(place, log)
            case does.CreateLog(_, place, topic_id, config):
                if self.files.exists(f"{path}/{place}"):
                    return events.NameTaken(place)
                log = folder.create_log(place, topic_id, config, now_ms=WALL_MS)
                return events.LogOpened(place, log)
            case does.SetAside(_, place):
                self.number += 1
                folder.set_aside(place, unique=f"{self.number}")
            case does.SettleNames():
                folder.settle_names()
            case does.DeleteLog(_, place):
                self.number += 1
                folder.delete_log(place, unique=f"{self.number}", now_ms=WALL_MS)
            case does.Checkpoint():
                folder.checkpoint()
            case does.LookForRoom():
                return events.FreeSeen(path, 0 if path in self.full else 1 << 30)
            case does.TakeReserve():
                made = events.NotReserved if path in self.full else events.Reserved
                return made(path)
        return None

    def folder_of(self, place: TopicPartition) -> str:
        replica = self.partitions.get(*place)
        return "" if replica is None else replica.folder

    def count(self, kind: type) -> int:
        """How many effects of a kind were performed."""
        return sum(isinstance(effect, kind) for effect in self.done)
