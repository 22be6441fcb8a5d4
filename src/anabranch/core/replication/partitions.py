"""The replicas that this broker hosts, and what a change of metadata asks of them.

What: lookup by topic name or id and index, and `plan`, which compares the metadata with what is
hosted. Requests also find here what any broker serves without hosting it: diskless partitions
(`unhosted`); those who keep logs do not see these. Why dictionaries of dictionaries: a request
names a topic once and then its partitions, so that the data path builds no key objects. Rules kept:
`plan` decides and changes nothing; the shell opens, creates and deletes logs and then calls `host`
and `drop`. A process leads nothing by metadata that does not know it: what its predecessor led,
with records that a power cut may have taken, is not its to lead in the same epoch.
Not here: files, folders, the order of work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from anabranch.core.diskless.topics import is_diskless
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.directories import ANYWHERE, LOST_DIRECTORY, directory_of
from anabranch.core.replication.folder_moves import WantedFolders
from anabranch.core.types import TopicId, TopicPartition, topic_id_text

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataDelta, MetadataImage, PartitionImage
    from anabranch.core.partition.protocol import Partition
    from anabranch.core.replication.replica import Replica


class Served(Protocol):
    """The partitions of one topic that requests may be about."""

    def get(self, index: int, /) -> Partition | None:
        """One of them, None when there is none of that index here."""


class UnhostedPartitions(Protocol):
    """Partitions that this broker serves and does not host."""

    def topic(self, name: str) -> Served | None:
        """Those of a topic, None when it is not of that kind."""

    def count(self) -> int:
        """A number for `Partition.ensure_current`: what is asked from now on has a higher one."""


class NoUnhostedPartitions:
    """There are none."""

    def topic(self, name: str) -> None:
        pass

    def count(self) -> int:
        return 0


class Assignment(NamedTuple):
    """A partition that the metadata places on this broker."""

    topic_partition: TopicPartition
    topic_id: TopicId
    state: PartitionImage


class Plan(NamedTuple):
    """What the shell has to do, in this order."""

    drop: tuple[Replica, ...] = ()
    """Hosted, but deleted or moved away: out of sight at once, files later."""
    update: tuple[tuple[Replica, PartitionImage], ...] = ()
    """Hosted, and their leader, epochs or ISR changed."""
    create: tuple[Assignment, ...] = ()
    """Not hosted yet: open the log when its folder is there, create it when not."""


class Partitions:
    """Every replica on this broker. `offline` are those whose folder or log has failed."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.unhosted: UnhostedPartitions = NoUnhostedPartitions()
        self.by_name: dict[str, dict[int, Replica]] = {}
        self.by_id: dict[TopicId, dict[int, Replica]] = {}
        self.offline: dict[TopicPartition, TopicId] = {}
        self.missing: set[TopicPartition] = set()
        """Of those offline: the ones whose logs are gone, to be copied anew when they may be."""
        self.older: set[TopicPartition] = set()
        """Of those missing: the ones of which a folder has a copy that may be older than what is in
        a folder that does not work, to be opened when it may be."""
        self.roomless: dict[TopicPartition, None] = {}
        """Of those offline: the ones that a full disk kept from being opened, to be tried again,
        in the order in which that happened."""
        self.rotten: set[TopicPartition] = set()
        """Of those offline: the ones whose logs are damaged, in folders that work."""
        self.offline_folders: set[str] = set()
        self.full_folders: set[str] = set()
        """Those that take no records until they have room again."""
        self.folders: list[str] = []
        self.moves = WantedFolders()
        self.directory_ids: Mapping[str, bytes] = {}
        """Folder -> the id by which the metadata names it."""
        self._offline_by_id: dict[TopicId, set[TopicPartition]] = {}

    def __iter__(self) -> Iterator[Replica]:
        return chain.from_iterable(map(dict.values, self.by_name.values()))

    def __len__(self) -> int:
        return sum(map(len, self.by_name.values()))

    def get(self, topic: str, index: int) -> Replica | None:
        """The hosted replica of a partition, or None."""
        replicas = self.by_name.get(topic)
        return None if replicas is None else replicas.get(index)

    def get_by_id(self, topic_id: TopicId, index: int) -> Replica | None:
        """The hosted replica of a partition whose topic is known by id, or None."""
        replicas = self.by_id.get(topic_id)
        return None if replicas is None else replicas.get(index)

    def topic(self, name: str) -> Served | None:
        """The partitions of a topic that this broker serves, None for none."""
        hosted = self.by_name.get(name)
        return self.unhosted.topic(name) if hosted is None else hosted

    def served(self, topic: str, index: int) -> Partition | None:
        """A partition that this broker serves, hosted or not, or None."""
        found = self.topic(topic)
        return None if found is None else found.get(index)

    def find(self, image: MetadataImage, topic: str, index: int) -> Partition:
        """A partition that this broker serves, whoever leads it.

        Raises KAFKA_STORAGE_ERROR (its disk failed), NOT_LEADER_OR_FOLLOWER (hosted elsewhere) or
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        found = self.served(topic, index)
        if found is not None:
            return found
        if (topic, index) in self.offline:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {topic}-{index} is in an offline folder"
            )
        if not exists(image, topic, index):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Partition {topic}-{index} is not hosted here"
        )

    def find_leader(
        self, image: MetadataImage, topic: str, index: int, *, current_leader_epoch: int = -1
    ) -> Partition:
        """As `find`, and it must lead in the epoch that the client knows."""
        found = self.find(image, topic, index)
        found.check_epoch(current_leader_epoch)
        found.check_leader()
        return found

    def host(self, replica: Replica) -> None:
        """Make an opened replica visible to requests."""
        topic, index = replica.topic_partition
        self.by_name.setdefault(topic, {})[index] = replica
        self.by_id.setdefault(replica.topic_id, {})[index] = replica
        self._no_more_offline(replica.topic_partition)

    def drop(self, replica: Replica) -> None:
        """Hide a replica from requests; dropping twice is harmless."""
        topic, index = replica.topic_partition
        _remove(self.by_name, topic, index, replica)
        _remove(self.by_id, replica.topic_id, index, replica)
        replica.retire()

    def give_up(self, place: TopicPartition, topic_id: TopicId, *, is_rotten: bool = False) -> None:
        """A log is not opened as long as this process lives: requests get KAFKA_STORAGE_ERROR."""
        self._no_more_offline(place)
        self._offline(place, topic_id)
        if is_rotten:
            self.rotten.add(place)

    def miss(self, place: TopicPartition, topic_id: TopicId) -> None:
        """A log is gone: it is copied anew when that is safe (`may_begin_anew`)."""
        self.give_up(place, topic_id)
        self.missing.add(place)

    def wait_for_room(self, place: TopicPartition, topic_id: TopicId) -> None:
        """A full disk kept a log from being opened: requests get KAFKA_STORAGE_ERROR until then."""
        self._no_more_offline(place)
        self._offline(place, topic_id)
        self.roomless[place] = None

    def unusable(self) -> Iterator[tuple[TopicPartition, TopicId]]:
        """Replicas that cannot serve although their folders work: the controller does not learn it
        from a folder that failed."""
        for place in (*self.roomless, *self.rotten):
            yield place, self.offline[place]

    def plan(self, image: MetadataImage, delta: MetadataDelta | None, *, broker_epoch: int) -> Plan:
        """What the metadata asks of this broker: for what `delta` touched, or (None) for all.

        `broker_epoch` is this process's own, -1 before it is registered. Until the metadata has
        that registration, partitions that it says this broker leads have no leader here; the
        registration takes those leaderships away, so that newer states of them follow.
        """
        touched = self._everything(image) if delta is None else self._touched(delta)
        drop: list[Replica] = []
        update: list[tuple[Replica, PartitionImage]] = []
        create: list[Assignment] = []
        own = image.brokers.get(self.broker_id)
        is_known = own is not None and own.epoch == broker_epoch
        for topic_id, indexes in touched.items():
            topic = image.topic_by_id(topic_id)
            hosted = self.by_id.get(topic_id, {})
            if topic is None:
                drop += hosted.values()
                self._forget_offline(topic_id)
                continue
            if is_diskless(image, topic.name):  # served without a log
                drop += hosted.values()  # it was classic before
                self._forget_offline(topic_id)
                continue
            for index in indexes:
                state = topic.partitions.get(index)
                replica = hosted.get(index)
                if state is not None and state.leader == self.broker_id and not is_known:
                    state = replace(state, leader=-1)
                if state is None or not self.is_placed_here(state):
                    drop += () if replica is None else (replica,)
                    if self.roomless:
                        self._wait_no_more(TopicPartition(topic.name, index), topic_id)
                elif replica is not None:
                    update.append((replica, state))
                elif self._is_wanted(
                    image, wanted := Assignment(TopicPartition(topic.name, index), topic_id, state)
                ):
                    create.append(wanted)
        return Plan(tuple(drop), tuple(update), tuple(create))

    def _is_wanted(self, image: MetadataImage, assignment: Assignment) -> bool:
        place, topic_id, state = assignment
        if self.offline.get(place) != topic_id or place in self.roomless:
            return True
        if place in self.older:
            return self.may_open_copy(image, state)
        return place in self.missing and self.may_begin_anew(state)

    def why_not_anew(self, assignment: Assignment, promised: Mapping[str, int]) -> str:
        """Why a log that was not found may not begin anew now; "" when it may. `promised` are the
        folders that work, each with the offset before which records were synced there. Where no
        folder failed, the log is gone (`miss`)."""
        place, _, state = assignment
        if self.offline_folders:
            away = ", ".join(sorted(self.offline_folders))
            return f"it may be in {away}, which is offline; repair that and restart"
        for path, offset in promised.items():
            if offset and not self.may_begin_anew(state):
                return (
                    f"{path}/{place} is gone, and records before offset {offset} were synced "
                    "there; it is copied again when another replica leads and this one is not in "
                    "sync; else restore that folder and restart, or delete the topic"
                )
        return ""

    def may_begin_anew(self, state: PartitionImage) -> bool:
        """Whether a log that is gone may be copied again from nothing: another broker leads, and
        the controller does not count on what was here."""
        return state.leader not in (-1, self.broker_id) and not self.is_counted(state)

    def is_counted(self, state: PartitionImage) -> bool:
        """Whether the controller counts on what this broker has."""
        return self.broker_id in (*state.isr, *state.elr, *state.last_known_elr)

    def away_directory(self, state: PartitionImage) -> bytes | None:
        """The id of the folder in which the metadata knows this broker's replica, where that folder
        does not work here; None where it works, or nothing is known."""
        named = directory_of(state, self.broker_id)
        if named is None or named in ANYWHERE or named == LOST_DIRECTORY:
            return None
        for path, each in self.directory_ids.items():
            if each == named:
                return named if path in self.offline_folders else None
        return named

    def may_open_copy(self, image: MetadataImage, state: PartitionImage) -> bool:
        """Whether a log may be opened though the metadata knows this replica in a folder that does
        not work: the controller counts on nothing that was here, or knows that the folder is gone,
        so that this one does not lead or count before it has been in sync again."""
        if state.leader == self.broker_id:
            return False
        own = image.brokers.get(self.broker_id)
        is_known = own is not None and directory_of(state, self.broker_id) not in own.log_dirs
        return is_known or not self.is_counted(state)

    def folder_called(self, directory: bytes) -> str:
        """How people know a folder: by its path, or else by its id."""
        for path, each in self.directory_ids.items():
            if each == directory:
                return path
        return f"the folder with the id {topic_id_text(TopicId(directory))}"

    def is_placed_here(self, state: PartitionImage) -> bool:
        """Whether the metadata gives this broker a replica, or an observer, of the partition."""
        return self.broker_id in state.replicas or self.broker_id in state.observers

    def _touched(self, delta: MetadataDelta) -> dict[TopicId, Iterable[int]]:
        touched: dict[TopicId, Iterable[int]] = dict(delta.changed_partitions)
        for topic in delta.deleted_topics:
            touched[topic.topic_id] = ()
        return touched

    def _everything(self, image: MetadataImage) -> dict[TopicId, Iterable[int]]:
        touched: dict[TopicId, Iterable[int]] = {
            topic.topic_id: sorted({*topic.partitions, *self.by_id.get(topic.topic_id, ())})
            for topic in sorted(image.topics_by_id.values(), key=lambda each: each.name)
        }
        for topic_id in (*self.by_id, *self._offline_by_id):
            touched.setdefault(topic_id, ())
        return touched

    def _forget_offline(self, topic_id: TopicId) -> None:
        for place in self.offline_of(topic_id):
            self._no_more_offline(place)

    def offline_of(self, topic_id: TopicId) -> list[TopicPartition]:
        """The partitions of a topic that are offline here."""
        return sorted(self._offline_by_id.get(topic_id, ()))

    def no_more(self, place: TopicPartition) -> None:
        """An offline partition is not asked for any more."""
        self._no_more_offline(place)

    def _offline(self, place: TopicPartition, topic_id: TopicId) -> None:
        self.offline[place] = topic_id
        self._offline_by_id.setdefault(topic_id, set()).add(place)

    def _wait_no_more(self, place: TopicPartition, topic_id: TopicId) -> None:
        """A partition is placed elsewhere: it needs no room here."""
        if place in self.roomless and self.offline[place] == topic_id:
            self._no_more_offline(place)

    def _no_more_offline(self, place: TopicPartition) -> None:
        topic_id = self.offline.pop(place, None)
        if topic_id is None:
            return
        of_topic = self._offline_by_id[topic_id]
        of_topic.discard(place)
        if not of_topic:
            del self._offline_by_id[topic_id]
        self.missing.discard(place)
        self.older.discard(place)
        self.roomless.pop(place, None)
        self.rotten.discard(place)


def exists(image: MetadataImage, topic: str, index: int) -> bool:
    """Whether the metadata knows the partition, wherever it is."""
    found = image.topic(topic)
    return found is not None and index in found.partitions


def _remove(tree: dict, key: object, index: int, replica: Replica) -> None:  # type: ignore[type-arg]
    replicas = tree.get(key)
    if replicas is not None and replicas.get(index) is replica:
        del replicas[index]
        if not replicas:
            del tree[key]
