"""Telling the controller in which folder each replica lies, as far as it does not know.

What: a broker with several folders chooses one for a new replica, and says so; until that is
committed it is told again. So is a replica that cannot serve although its folder works: its log
is damaged, or a full disk has no room for it. Why: the controller moves the leaderships of what is
lost, and only of that. Rules kept: what no other broker is in sync with is never told to be lost; a
replica that was begun anew says nothing while the metadata names another folder: it has to catch up
first, and the controller notes the new folder then; what lies in a folder that fails before it was
told is told all the same. Source: KIP-858. Not here: which folder is chosen (`partitions.py`), what
follows (`core/controller/brokers/directories.py`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from anabranch.core.api.context import Broker
from anabranch.core.controller.brokers.membership import ANYWHERE, LOST_DIRECTORY, directory_of
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.metadata.levels import DIRECTORIES_SINCE, level_of
from anabranch.core.replication.replica import Replica
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.logs import logger

LOG = logger("folders")
MOST = 2000
"""Replicas a request: an answer stays small, and a broker with many is heard in between."""
RETRY_S = 0.5


class Placed(NamedTuple):
    """A replica in a folder; `found` says that its log was there already."""

    topic_id: TopicId
    directory: bytes
    found: bool


class Assigning:
    """What one broker has to tell. `directories` are the ids of its folders by path."""

    def __init__(
        self, broker: Broker, channel: ControllerChannel, directories: Mapping[str, bytes]
    ) -> None:
        self.directories = directories
        self._broker = broker
        self._channel = channel.another("folders")
        self._placed: dict[TopicPartition, Placed] = {}
        self._image = MetadataImage.empty()
        self._task: asyncio.Task[None] | None = None

    def hosted(self, replica: Replica, *, found: bool) -> None:
        """A replica was opened or made."""
        self._placed.pop(replica.topic_partition, None)
        self._note(
            replica.topic_partition,
            Placed(replica.topic_id, self.directories[replica.folder], found),
        )

    def tell_unusable(self) -> None:
        """Have others lead what cannot serve here, and not wait for it, where others can."""
        for place, topic_id in self._broker.partitions.unusable():
            self._note(place, Placed(topic_id, LOST_DIRECTORY, found=False))

    def _note(self, place: TopicPartition, placed: Placed) -> None:
        if self._is_due(place, placed):
            self._placed[place] = placed
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._tell())

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

    async def stop(self) -> None:
        """Let go of what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    def _is_due(self, place: TopicPartition, placed: Placed) -> bool:
        topic = self._image.topic_by_id(placed.topic_id)
        partition = None if topic is None else topic.partitions.get(place.partition)
        if partition is None:
            return False
        known = directory_of(partition, self._broker.broker_id)
        if known is None or known == placed.directory:
            return False
        if placed.directory == LOST_DIRECTORY:
            return self._broker.broker_id in partition.isr and len(partition.isr) > 1
        return known in ANYWHERE or placed.found

    async def _tell(self) -> None:
        while self._placed:
            level = level_of(self._image)
            if self._broker.broker_epoch < 0 or level is None or level < DIRECTORIES_SINCE:
                await asyncio.sleep(RETRY_S)
                continue
            told = dict(list(self._placed.items())[:MOST])
            try:
                answer = await self._channel.send(self._request(told))
            except ApiError as fault:
                LOG.warning("the controller does not know where replicas lie", why=fault.message)
                answer = AssignReplicasToDirsResponse(error_code=fault.code)
            if answer.error_code:
                await asyncio.sleep(RETRY_S)
            else:
                self._answered(told, answer)

    def _answered(
        self, told: Mapping[TopicPartition, Placed], answer: AssignReplicasToDirsResponse
    ) -> None:
        refused = {
            (topic.topic_id, each.partition_index): each.error_code
            for directory in answer.directories
            for topic in directory.topics
            for each in topic.partitions
            if each.error_code
        }
        for place, placed in told.items():
            if self._placed.get(place) == placed:
                del self._placed[place]
            code = refused.get((placed.topic_id, place.partition))
            if code is not None:
                LOG.warning("a folder was not noted", partition=place, code=ErrorCode(code).name)

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
