"""What a broker's replication wants done: frozen messages to the shell, which only performs them.

`SendFetch` goes to another broker, at most one at a time a leader and fetcher; `SendAlterPartition`
to the active controller, one at a time. The answer, or that there was none, comes back with the
very effect: an answer to an effect that is not under way any more is left alone. `Cut` and
`Obstacle` are not sent: an operator is told of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from anabranch.core.replication.proposals import Proposal
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import TopicPartition
    from anabranch.core.wire.messages.alter_partition import AlterPartitionRequest
    from anabranch.core.wire.messages.fetch import FetchRequest


class SendFetch(msgspec.Struct, frozen=True, eq=False):
    """Ask a leader for records. `fetcher` is which of `num.replica.fetchers` asks."""

    version: ClassVar[int] = 18
    leader_id: int
    fetcher: int
    request: FetchRequest


class SendAlterPartition(msgspec.Struct, frozen=True, eq=False):
    """Ask the controller for other in-sync replicas, or whether leaderships stand."""

    version: ClassVar[int] = 3
    request: AlterPartitionRequest
    proposals: tuple[tuple[Replica, Proposal], ...]
    number: int = 0
    """Counts the questions: a higher one left later."""


Effect: TypeAlias = SendFetch | SendAlterPartition


class Cut(NamedTuple):
    """A follower dropped `[first_offset, end_offset)`, which its leader does not have; or, with
    `is_copied_again`, transactions whose markers compaction may have taken from the leader's."""

    topic_partition: TopicPartition
    leader_id: int
    leader_epoch: int
    first_offset: int
    end_offset: int
    is_copied_again: bool = False


class Obstacle(NamedTuple):
    """A follower does not get on with a partition, and goes on trying."""

    topic_partition: TopicPartition
    leader_id: int
    why: str
