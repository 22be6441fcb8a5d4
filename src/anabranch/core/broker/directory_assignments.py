"""Telling the controller in which folder each replica lies, as far as it does not know.

What: a broker with several folders chooses one for a new replica, and says so; until that is
committed it is told again. So is a replica that cannot serve although its folder works: its log
is damaged, or a full disk has no room for it. Why: the controller moves the leaderships of what is
lost, and only of that. Rules kept: what no other broker is in sync with is never told to be lost; a
replica that was begun anew says nothing while the metadata names another folder: it has to catch up
first, and the controller notes the new folder then; what lies in a folder that fails before it was
told is told all the same; one request is under way at a time.

The performer calls `take_effects` after every other call and at `next_tick_ms`, sends each `Tell`,
and gives what came of it to `answered`. Source: KIP-858. Not here: which folder is chosen
(`hosting/folders.py`), what follows (`core/controller/brokers/directories.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from anabranch.core.broker.hosting.effects import TellHosted, TellUnusable
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.directories import ANYWHERE, LOST_DIRECTORY, directory_of
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import DIRECTORIES_SINCE, level_of
from anabranch.core.types import NEVER_MS
from anabranch.core.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataDelta
    from anabranch.core.replication.partitions import Partitions
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import TopicId, TopicPartition

MOST = 2000
"""Replicas a request: an answer stays small, and a broker with many is heard in between."""
RETRY_MS = 500
"""After a refusal, and while the controller cannot be told."""


class Teller(Protocol):
    """What is needed of the broker that tells."""

    broker_id: int
    broker_epoch: int
    partitions: Partitions


class Placed(NamedTuple):
    """A replica in a folder; `found` says that its log was there already."""

    topic_id: TopicId
    directory: bytes
    found: bool


class Tell(msgspec.Struct, frozen=True, eq=False):
    """Send this to the active controller; `placed` is what it says."""

    request: AssignReplicasToDirsRequest
    placed: Mapping[TopicPartition, Placed]


class DirectoryAssignments:
    """What one broker has to tell. `directories` are the ids of its folders by path."""

    def __init__(self, broker: Teller, directories: Mapping[str, bytes]) -> None:
        self.directories = directories
        self._broker = broker
        self._placed: dict[TopicPartition, Placed] = {}
        self._image = MetadataImage.empty()
        self._under_way: Tell | None = None
        self._due_ms = 0
        """No request is sent before this."""

    # What is to be told.

    def tell(self, effect: TellHosted | TellUnusable) -> None:
        """Hosting has something to tell."""
        if isinstance(effect, TellHosted):
            self.hosted(effect.replica, found=effect.is_found)
        else:
            self.tell_unusable()

    def hosted(self, replica: Replica, *, found: bool) -> None:
        """A replica was opened or made."""
        self._placed.pop(replica.topic_partition, None)
        directory = self.directories[replica.folder]
        self._note(replica.topic_partition, Placed(replica.topic_id, directory, found))

    def tell_unusable(self) -> None:
        """Have others lead what cannot serve here, and not wait for it, where others can."""
        for place, topic_id in self._broker.partitions.unusable():
            self._note(place, Placed(topic_id, LOST_DIRECTORY, found=False))

    def follow(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """A new image, which is not acted on yet: forget what it knows."""
        self._image = image
        for place, placed in tuple(self._placed.items()):
            if not self._is_due(place, placed):
                del self._placed[place]
        for topic_id, indexes in () if delta is None else delta.changed_partitions.items():
            for index in indexes:
                replica = self._broker.partitions.get_by_id(topic_id, index)
                if replica is not None and replica.topic_partition not in self._placed:
                    self.hosted(replica, found=False)

    def _note(self, place: TopicPartition, placed: Placed) -> None:
        if self._is_due(place, placed):
            self._placed[place] = placed

    def _is_due(self, place: TopicPartition, placed: Placed) -> bool:
        topic = self._image.topic_by_id(placed.topic_id)
        partition = None if topic is None else topic.partitions.get(place.partition)
        if topic is None or partition is None or is_diskless(self._image, topic.name):
            return False  # replicas of diskless topics lie nowhere
        known = directory_of(partition, self._broker.broker_id)
        if known is None or known == placed.directory:
            return False
        if placed.directory == LOST_DIRECTORY:
            return self._broker.broker_id in partition.isr and len(partition.isr) > 1
        return known in ANYWHERE or placed.found

    # Telling it.

    @property
    def next_tick_ms(self) -> int:
        """When `take_effects` has something to give, if nothing else happens."""
        return self._due_ms if self._placed and self._under_way is None else NEVER_MS

    def take_effects(self, now_ms: int) -> list[Tell]:
        """What is to be sent now."""
        if now_ms < self.next_tick_ms:
            return []
        level = level_of(self._image)
        if self._broker.broker_epoch < 0 or level is None or level < DIRECTORIES_SINCE:
            self._due_ms = now_ms + RETRY_MS
            return []
        told = dict(list(self._placed.items())[:MOST])
        self._under_way = Tell(self._request(told), told)
        return [self._under_way]

    def answered(
        self, tell: Tell, answer: AssignReplicasToDirsResponse | None, now_ms: int
    ) -> list[tuple[TopicPartition, ErrorCode]]:
        """What the controller said, None for nothing; the replicas whose folder it does not note,
        which are not told again."""
        self._under_way = None
        if answer is None or answer.error_code:
            self._due_ms = now_ms + RETRY_MS
            return []
        refused = {
            (topic.topic_id, each.partition_index): ErrorCode(each.error_code)
            for directory in answer.directories
            for topic in directory.topics
            for each in topic.partitions
            if each.error_code
        }
        for place, placed in tell.placed.items():
            if self._placed.get(place) == placed:
                del self._placed[place]
        return [
            (place, refused[placed.topic_id, place.partition])
            for place, placed in tell.placed.items()
            if (placed.topic_id, place.partition) in refused
        ]

    def _request(self, told: Mapping[TopicPartition, Placed]) -> AssignReplicasToDirsRequest:
        by_directory: dict[bytes, dict[TopicId, list[int]]] = defaultdict(dict)
        for place, placed in told.items():
            topics = by_directory[placed.directory]
            topics.setdefault(placed.topic_id, []).append(place.partition)
        return AssignReplicasToDirsRequest(
            broker_id=self._broker.broker_id,
            broker_epoch=self._broker.broker_epoch,
            directories=[
                DirectoryData(
                    id=directory,
                    topics=[
                        TopicData(
                            topic_id=topic_id,
                            partitions=[PartitionData(partition_index=each) for each in indexes],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory, topics in by_directory.items()
            ],
        )
