"""What a broker has to ask the controller about partitions that it leads, one request at a time.

What: proposals of another ISR, and leaderships that are in doubt, wait here until the request
before is answered; then all of them go with the next one. A doubted leadership is asked about by a
proposal that changes nothing: the controller compares its leader epoch. Rule kept: what one request
says of a partition is one thing; requests are numbered in the order in which they leave. Source:
KIP-497, decision 50. Not here: what is proposed, and what follows from answers (`in_sync`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from anabranch.core.replication.effects import SendAlterPartition
from anabranch.core.replication.in_sync import asked, unchanged
from anabranch.core.replication.proposals import Proposal
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestTopicData,
)

if TYPE_CHECKING:
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import TopicPartition

MOST_PROPOSALS = 1000
"""Partitions of a kind in one AlterPartition: a broker that returns joins thousands of ISRs at
once."""


class ControllerRequests:
    """See the module. It is true while there is something to ask."""

    def __init__(self) -> None:
        self._proposed: dict[TopicPartition, Replica] = {}
        self._doubted: dict[TopicPartition, Replica] = {}
        self._asked = 0

    def __bool__(self) -> bool:
        return bool(self._proposed or self._doubted)

    def propose(self, replica: Replica) -> None:
        """Ask for the replica's proposal."""
        self._proposed[replica.topic_partition] = replica

    def doubt(self, replica: Replica) -> int:
        """Ask whether this broker leads the partition: the number of the request that will."""
        self._doubted[replica.topic_partition] = replica
        return self._asked + 1

    def forget(self, place: TopicPartition) -> None:
        """The partition is not led here any more."""
        self._proposed.pop(place, None)
        self._doubted.pop(place, None)

    def request(self, broker_id: int, broker_epoch: int) -> SendAlterPartition | None:
        """The next request to the controller, None when there is nothing to say after all."""
        proposals = tuple(self._take())
        if not proposals:
            return None
        topics: dict[bytes, AlterPartitionRequestTopicData] = {}
        for replica, proposal in proposals:
            topic = topics.get(replica.topic_id)
            if topic is None:
                topic = AlterPartitionRequestTopicData(topic_id=replica.topic_id, partitions=[])
                topics[replica.topic_id] = topic
            topic.partitions.append(asked(replica, proposal))
        request = AlterPartitionRequest(
            broker_id=broker_id, broker_epoch=broker_epoch, topics=list(topics.values())
        )
        self._asked += 1
        return SendAlterPartition(request, proposals, self._asked)

    def _take(self) -> Iterator[tuple[Replica, Proposal]]:
        for place, replica in list(islice(self._proposed.items(), MOST_PROPOSALS)):
            del self._proposed[place]
            if replica.proposal is not None:
                self._doubted.pop(place, None)  # the answer tells that too
                yield replica, replica.proposal
        for place, replica in list(islice(self._doubted.items(), MOST_PROPOSALS)):
            del self._doubted[place]
            if replica.is_leader:
                yield replica, unchanged(replica)
