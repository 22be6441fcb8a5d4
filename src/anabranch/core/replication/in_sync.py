"""Who should be in sync: what a leader proposes to the controller, and what it makes of the answer.

Rules kept: one change of a partition's ISR is under way at a time. A follower may join when it has
everything up to the high watermark, reaches into this leader's epoch and has dropped what the
leader has deleted, and when it is a replica (no observer) with room for records whose broker is
active and of the broker epoch that it fetched with: what the controller would refuse is not asked
with every fetch. A follower leaves when it was not caught up for `replica.lag.time.max.ms`. A
proposed member bounds the high watermark at once, because the controller may have accepted it
before the answer is here; a proposed leave changes nothing until it is committed.
Source: KIP-497, KIP-841, KIP-903, Kafka's Partition. Not here: when it is sent (`replication`).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from anabranch.core.controller.brokers.full_folders import without_room
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import RECOVERED
from anabranch.core.partition.protocol import UNKNOWN_OFFSET
from anabranch.core.replication.progress import Progress
from anabranch.core.replication.proposals import Proposal
from anabranch.core.types import UNKNOWN_BROKER_EPOCH
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequestPartitionData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from anabranch.core.wire.own_fields import Lag, Lags, tagged

if TYPE_CHECKING:
    from anabranch.core.metadata.image import BrokerImage, MetadataImage
    from anabranch.core.replication.replica import Replica


class Verdict(Enum):
    """What becomes of a proposal."""

    COMMITTED = "committed"
    WAITING = "waiting"
    """Something newer exists and will come with the metadata: no use in asking again."""
    REFUSED = "refused"
    """Not now: the committed ISR holds, and another proposal may be made."""
    AGAIN = "again"
    """The controller was not able to say: ask again."""
    OUTDATED = "outdated"
    """The partition has moved on since it was asked."""


_WAITS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
_AFTER_THE_EPOCHS = frozenset({ErrorCode.NONE, ErrorCode.INELIGIBLE_REPLICA})
"""What the controller answers once it has found the leader epoch to be the current one."""
_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})


def may_join(replica: Replica, follower: Progress, image: MetadataImage) -> bool:
    """Whether a follower that has just fetched belongs into the ISR and is not in it."""
    broker_id = follower.broker_id
    if replica.proposal is not None or broker_id in replica.in_sync_replicas:
        return False
    if broker_id not in replica.replicas:
        return False
    if follower.end_offset < max(replica.high_watermark, replica.epoch_start_offset):
        return False
    if UNKNOWN_OFFSET != follower.start_offset < replica.log.start_offset:
        return False  # histories cannot be compared there: it may have what was never committed
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.active or _lacks_room(replica, broker, image):
        return False
    return follower.broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.epoch)


def _lacks_room(replica: Replica, broker: BrokerImage, image: MetadataImage) -> bool:
    """Whether the metadata says that the broker's replica has no room, so that it may not join."""
    if not broker.full_log_dirs:
        return False
    state = image.partition(*replica.topic_partition)
    full = {broker.broker_id: broker.full_log_dirs}
    return state is not None and broker.broker_id in without_room(full, image, state)


def lagging(replica: Replica, now_ms: int, longest_ms: int, led_since_ms: int) -> tuple[Lag, ...]:
    """In-sync followers that were not caught up for longer than `longest_ms`, and how long.

    A leader that has just begun gives everybody that time to appear.
    """
    end = replica.log.end_offset
    late = []
    for follower in replica.holders:
        if follower.broker_id not in replica.in_sync_replicas:
            continue  # it left, and the metadata has not told it yet
        since_ms = max(follower.caught_up_ms, led_since_ms)
        if follower.end_offset != end and now_ms - since_ms > longest_ms:
            silent_ms = now_ms - max(follower.fetched_ms, led_since_ms)
            late.append(
                Lag(broker_id=follower.broker_id, silent_ms=silent_ms, behind_ms=now_ms - since_ms)
            )
    return tuple(late)


def propose(
    replica: Replica, isr: tuple[int, ...], own_broker_epoch: int, lags: tuple[Lag, ...] = ()
) -> Proposal:
    """Begin a change of the ISR; members that would join count for the high watermark from now."""
    epochs = tuple(
        own_broker_epoch if each == replica.broker_id else replica.progress_of(each).broker_epoch
        for each in isr
    )
    growth = len(isr) - len(replica.in_sync_replicas)
    proposal = Proposal(isr, epochs, replica.leader_epoch, replica.partition_epoch, growth, lags)
    replica.take_in_sync(replica.in_sync_replicas, proposal)
    return proposal


def unchanged(replica: Replica) -> Proposal:
    """A proposal of what is: by its answer the controller says whether this leadership stands."""
    isr = replica.in_sync_replicas
    epochs = (UNKNOWN_BROKER_EPOCH,) * len(isr)
    return Proposal(isr, epochs, replica.leader_epoch, replica.partition_epoch)


def confirms(
    replica: Replica, proposal: Proposal, answer: AlterPartitionResponsePartitionData
) -> bool:
    """Whether an answer shows that the controller had elected no other leader when it gave it."""
    return (
        answer.error_code in _AFTER_THE_EPOCHS
        and replica.is_leader
        and proposal.leader_epoch == replica.leader_epoch
    )


def asked(replica: Replica, proposal: Proposal) -> AlterPartitionRequestPartitionData:
    """The proposal as AlterPartition carries it. A leader that asks has recovered."""
    return AlterPartitionRequestPartitionData(
        partition_index=replica.topic_partition.partition,
        leader_epoch=proposal.leader_epoch,
        new_isr=list(proposal.isr),
        new_isr_with_epochs=[
            BrokerState(broker_id=broker_id, broker_epoch=epoch)
            for broker_id, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
        ],
        leader_recovery_state=RECOVERED,
        partition_epoch=proposal.partition_epoch,
        unknown_tagged_fields=tagged(Lags(lags=list(proposal.lags))) if proposal.lags else None,
    )


def settle(
    replica: Replica, proposal: Proposal, answer: AlterPartitionResponsePartitionData
) -> Verdict:
    """Act on the controller's answer to a proposal."""
    if replica.proposal is not proposal:
        return Verdict.OUTDATED
    if answer.error_code == ErrorCode.NONE:
        return _commit(replica, answer)
    if answer.error_code in _WAITS:
        return Verdict.WAITING
    if answer.error_code in _REFUSED:
        replica.take_in_sync(replica.in_sync_replicas)
        return Verdict.REFUSED
    return Verdict.AGAIN


def _commit(replica: Replica, answer: AlterPartitionResponsePartitionData) -> Verdict:
    if answer.leader_epoch != replica.leader_epoch:
        return Verdict.WAITING
    if answer.partition_epoch < replica.partition_epoch:
        return Verdict.OUTDATED
    replica.recovery_state = answer.leader_recovery_state
    replica.take_answer(tuple(answer.isr), answer.partition_epoch)
    return Verdict.COMMITTED
