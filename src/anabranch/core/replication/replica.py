"""One hosted replica of one partition: its log, who leads it, and what of it is committed.

What: the state that requests meet: the checks before an append, the high watermark, the limit of a
read, the min.insync.replicas rule, and how far followers are. Rules kept: a record counts (is
acknowledged under acks=all, is shown to consumers) when every in-sync replica has it, also one that
is only proposed to be in sync, and at least min.insync.replicas are in sync; with flush.messages=1,
when it is also flushed here. An answer of the controller may overtake the metadata, and with it a
new minimum or factor by which the controller took a member that left for eligible to lead: until
the metadata tells of the change too, the high watermark waits for whoever left, and for the minimum
as it was. The high watermark goes back only when the log is truncated.
Source: KIP-101 and KIP-320 (leader epochs), KIP-497 (proposed ISR), KIP-966 (the high watermark
waits for the minimum ISR). Not here: who should be in sync (`in_sync`), copying (`follower`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from anabranch.core.diskless.migration import check_marker, check_open, check_shortening, phase_of
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.image import RECOVERED
from anabranch.core.partition.composite import Composite
from anabranch.core.partition.protocol import (
    ACKS_ALL,
    READ_COMMITTED,
    UNKNOWN_OFFSET,
    Partition,
    Ticket,
)
from anabranch.core.partition.tail import NO_TAIL, UNKNOWN_TAIL
from anabranch.core.replication.progress import Progress
from anabranch.core.replication.throttles import is_listed
from anabranch.core.types import NO_LEADER, UNKNOWN_BROKER_EPOCH
from anabranch.core.wire.batch import read_header

if TYPE_CHECKING:
    from anabranch.core.log.appends import AppendResult
    from anabranch.core.log.log import Log
    from anabranch.core.metadata.image import BrokerImage, PartitionImage
    from anabranch.core.replication.proposals import Proposal
    from anabranch.core.settings.topic import TopicConfig
    from anabranch.core.types import Buffer, TopicId, TopicPartition

UNKNOWN_EPOCH = -1


class Role(Enum):
    """What this broker is to the partition."""

    LEADER = "leader"
    FOLLOWER = "follower"
    OBSERVER = "observer"
    OFFLINE = "offline"


def replica_of(partition: Partition) -> Replica:
    """The same partition as the replica that it is, with its followers and throttles.

    Raises NOT_LEADER_OR_FOLLOWER for one that brokers do not copy from each other.
    """
    if isinstance(partition, Replica):
        return partition
    raise ApiError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"No broker copies {partition.topic_partition} from another one.",
    )


class Replica(Composite):
    """One partition as this broker hosts it. All calls are for the loop's thread.

    `appended_bytes` only grows: a cheap measure of what arrived since a fetch was parked.
    `epoch_start_offset` is where this broker's current leadership began, -1 before any;
    `led_from_epoch` the epoch in which it began to lead without a break, -1 when it does not lead.
    `holders` are the followers whose log ends bound the high watermark. `proposal` is the change of
    the ISR that is under way. `left` are members that answers took out of the ISR, of which the
    metadata has not told yet, and `told_count` is how many it told of last. `leader_high_watermark`
    is what the leader last told a follower, and may lie beyond the follower's own end; -1 before.
    """

    __slots__ = (
        "appended_bytes",
        "began_remotely",
        "broker_id",
        "config",
        "confirmed",
        "eligible",
        "epoch_start_offset",
        "failed_remotely",
        "flushed_counts",
        "folder",
        "followers",
        "high_watermark",
        "holders",
        "in_sync_replicas",
        "is_ahead",
        "is_leader",
        "is_throttled_follower",
        "is_throttled_leader",
        "leader_epoch",
        "leader_high_watermark",
        "leader_id",
        "led_from_epoch",
        "left",
        "min_insync_replicas",
        "missing",
        "observers",
        "partition_epoch",
        "phase",
        "proposal",
        "recovery_state",
        "replicas",
        "replication_factor",
        "told_count",
        "topic_id",
        "topic_partition",
        "waits_for",
    )

    high_watermark: int

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        log: Log,
        config: TopicConfig,
        *,
        broker_id: int,
        folder: str,
        high_watermark: int = 0,
    ) -> None:
        self.confirmed = 0
        """The last question whose answer said that this leadership stands."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.older = UNKNOWN_TAIL if log.config.has_remote else NO_TAIL
        self.broker_id = broker_id
        self.folder = folder
        self.leader_id: int = NO_LEADER
        self.leader_epoch = UNKNOWN_EPOCH
        self.partition_epoch = UNKNOWN_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.replication_factor = 0
        self.missing = 0
        """Replicas that no broker has yet."""
        self.observers: tuple[int, ...] = ()
        self.in_sync_replicas: tuple[int, ...] = ()
        self.eligible: tuple[int, ...] = ()
        """The eligible leader replicas: not in sync, and have what was committed then."""
        self.left: tuple[int, ...] = ()
        self.told_count = 0
        self.recovery_state = RECOVERED
        self.is_leader = self.is_ahead = False
        """`is_ahead`: the metadata went back behind this log. It neither leads nor follows until
        the process ends: epochs that are given again would make two histories look like one."""
        self.appended_bytes = 0
        self.began_remotely = self.failed_remotely = 0
        """How often the log began where the leader's local part does, and how often that failed."""
        self.epoch_start_offset = self.led_from_epoch = self.leader_high_watermark = -1
        self.followers: dict[int, Progress] = {}
        self.holders: tuple[Progress, ...] = ()
        self.proposal: Proposal | None = None
        self.high_watermark = min(max(high_watermark, log.local_start_offset), log.end_offset)
        self.take_config(config)

    def forget_older(self) -> None:
        """The log begins anew further on: what is known of remote segments ends before that, or is
        of a history that is gone, so that nothing is told of them before their facts are read."""
        if self.log.config.has_remote:
            self.older = UNKNOWN_TAIL

    def take_config(self, config: TopicConfig) -> None:
        """Use a topic's effective configuration from now on; that of the log was changed first."""
        self.config = config
        if self.log.config.has_remote == (self.older is NO_TAIL):
            self.older = UNKNOWN_TAIL if self.log.config.has_remote else NO_TAIL
            if self.older is NO_TAIL:
                self.log.forget_remote()
        self.phase = phase_of(config.diskless_migration_phase)
        self.waits_for = ""
        """Why this leader's log is not ready, or not sealed, in that phase; "" where it is."""
        self.flushed_counts = config.flush_messages == 1
        self.min_insync_replicas = config.min_insync_replicas
        partition = self.topic_partition.partition
        self.is_throttled_leader = is_listed(
            config.leader_replication_throttled_replicas, partition, self.broker_id
        )
        self.is_throttled_follower = is_listed(
            config.follower_replication_throttled_replicas, partition, self.broker_id
        )

    def take_state(self, state: PartitionImage) -> bool:
        """Follow the metadata: leader, epochs, replicas, ISR. True when leadership changed.

        A state that is older than what is known here is left alone. An epoch that is older than
        this log's records shows that the metadata was set back (`is_ahead`).
        """
        if state.partition_epoch < self.partition_epoch and state.leader_epoch <= self.leader_epoch:
            return False
        new_epoch = state.leader_epoch != self.leader_epoch
        is_news = new_epoch or state.partition_epoch > self.partition_epoch
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.replication_factor = state.replication_factor
        self.missing = state.missing
        self.observers = tuple(state.observers)
        self.eligible = tuple(state.elr)
        self.recovery_state = state.recovery_state
        led, self.is_leader = self.is_leader, state.leader == self.broker_id
        self.is_ahead = self.is_ahead or state.leader_epoch < self.log.epochs.latest
        if self.is_ahead:
            self.is_leader = False
        if new_epoch:
            self.followers = {}
            self.confirmed = 0
            self.leader_high_watermark = -1
            if self.is_leader:
                self.epoch_start_offset = self.log.end_offset
                self.log.assign_leader_epoch(state.leader_epoch)
        if not self.is_leader:
            self.led_from_epoch = -1
        elif not led:
            self.led_from_epoch = state.leader_epoch
        self.left, self.told_count = (), len(state.isr)
        self.take_in_sync(tuple(state.isr), self.proposal if not is_news else None)
        self.advance()
        return new_epoch

    def take_in_sync(self, isr: tuple[int, ...], proposal: Proposal | None = None) -> None:
        """Use a committed ISR; a proposed one that is larger bounds the high watermark already."""
        self.in_sync_replicas = isr
        self.proposal = proposal
        if not self.is_leader:
            self.holders = ()
            return
        members = dict.fromkeys((*isr, *self.left, *(() if proposal is None else proposal.isr)))
        members.pop(self.broker_id, None)
        self.holders = tuple(self.progress_of(each) for each in members)

    def take_answer(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Use the ISR of the controller's answer, which may have overtaken the metadata."""
        self.partition_epoch = partition_epoch
        self.left += tuple(each for each in self.in_sync_replicas if each not in isr)
        self.take_in_sync(isr)

    def retire(self) -> None:
        """Lead no more: the replica is not hosted any longer."""
        self.is_leader = False
        self.led_from_epoch = -1
        self.take_in_sync((), None)

    def progress_of(self, broker_id: int) -> Progress:
        """How far a follower is under this leadership."""
        known = self.followers.get(broker_id)
        if known is None:
            known = self.followers[broker_id] = Progress(broker_id)
        return known

    @property
    def role(self) -> Role:
        """What this broker is to the partition now."""
        if self.log.fault is not None:
            return Role.OFFLINE
        if self.is_leader:
            return Role.LEADER
        return Role.OBSERVER if self.broker_id in self.observers else Role.FOLLOWER

    @property
    def required_in_sync(self) -> int:
        """min.insync.replicas, but never more than the partition should have replicas."""
        return min(self.min_insync_replicas, max(1, self.replication_factor))

    @property
    def enough_in_sync(self) -> bool:
        return self._is_enough(len(self.in_sync_replicas))

    def _is_enough(self, in_sync: int) -> bool:
        # the setting asks for no less than what is required
        return in_sync >= self.min_insync_replicas or in_sync >= self.required_in_sync

    @property
    def may_be_deposed(self) -> bool:
        return True

    def append(
        self, records: Buffer, *, required_acks: int, now_ms: int, client: bool = True
    ) -> AppendResult:
        """Append a producer's batch as the leader; `records` is patched in place.

        Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, or what the log refuses with.
        """
        if not self.is_leader:
            self.check_leader()
        if self.phase is not None:
            check = check_open if client else check_marker
            check(self.phase, read_header(records, 0), self.log.producers)
        if required_acks == ACKS_ALL and not self.enough_in_sync:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {sorted(self.in_sync_replicas)} is insufficient to "
                f"satisfy the min.isr requirement of {self.required_in_sync} for partition "
                f"{self.topic_partition}",
            )
        for follower in self.followers.values():
            follower.stayed(self.log.end_offset)
        result = self.log.append_as_leader(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, client=client
        )
        self.appended_bytes += len(records)
        self.advance()
        return result

    def delete_before(self, offset: int) -> None:
        check_shortening(self.phase)
        super().delete_before(offset)

    def advance(self) -> bool:
        """Raise the high watermark to what every in-sync replica has. True when it moved."""
        in_sync = min(self.told_count, len(self.in_sync_replicas))
        if not self.is_leader or not self._is_enough(in_sync):
            return False
        log = self.log
        end = log.flushed_offset if self.flushed_counts else log.end_offset
        for follower in self.holders:
            if follower.end_offset < end:
                end = follower.end_offset
        return self._raise_high_watermark(end)

    def _raise_high_watermark(self, end: int) -> bool:
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        producers = self.log.producers
        if producers.unreplicated:
            producers.replicated(end)
        return True

    def synced(self, end_offset: int) -> bool:
        """A sync round ended: everything before `end_offset` is flushed. True when waiters care."""
        self.log.synced(end_offset)
        return self.advance() or self.flushed_counts

    def is_quiet(self, replica_id: int) -> bool:
        """Whether nothing follows from a fetch of this follower that says nothing new: it is in
        sync, or never will be."""
        return replica_id in self.in_sync_replicas or replica_id in self.observers

    def follower_fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        *,
        now_ms: int = 0,
        broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        start_offset: int = UNKNOWN_OFFSET,
    ) -> bool:
        """A follower asks from `fetch_offset`: it has everything before. True when that commits.

        Only for a fetch of the current leader epoch whose history is ours (no divergence).
        """
        follower = self.followers.get(replica_id) or self.progress_of(replica_id)
        follower.fetched(fetch_offset, self.log.end_offset, now_ms, broker_epoch, start_offset)
        return self.advance()

    def copied(self, leader_high_watermark: int, leader_start_offset: int) -> bool:
        """After a fetch from the leader: follow its marks. True when readers may see more.

        The log start follows the leader's. What was known to be committed stays so: a new leader
        may know a smaller high watermark for a while.
        """
        log = self.log
        self.leader_high_watermark = leader_high_watermark
        if log.start_offset < leader_start_offset <= log.end_offset:
            log.delete_records_before(leader_start_offset)
        end = max(min(leader_high_watermark, log.end_offset), log.local_start_offset)
        return self._raise_high_watermark(end)

    def truncated(self) -> None:
        """The log was cut: nothing beyond its end is known to be committed any more."""
        log = self.log
        high_watermark = min(self.high_watermark, log.end_offset)
        self.high_watermark = max(high_watermark, log.local_start_offset)

    def acknowledged(
        self, ticket: Ticket, led_from_epoch: int, acks: int = ACKS_ALL
    ) -> ErrorCode | None:
        """After a break in the leadership other records may have these offsets. The
        ISR may have shrunk since the append: then the records are there and committed, but on fewer
        replicas than was promised."""
        if self.led_from_epoch != led_from_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks != ACKS_ALL:
            if self.flushed_counts and self.log.flushed_offset <= ticket.last_offset:
                return None
            return ErrorCode.NONE
        if self.high_watermark > ticket.last_offset:
            enough = self.enough_in_sync
            return ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return None

    def needs_sync(self, now_ms: int) -> bool:
        return self.flushed_counts or self.log.sync_due(now_ms)

    @property
    def is_alone(self) -> bool:
        return not self.holders

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.topic_partition}"

    @property
    def high_watermark_lags(self) -> bool:
        """Source: KIP-207."""
        return self.epoch_start_offset > self.high_watermark

    def low_watermark(self, brokers: Mapping[int, BrokerImage]) -> int:
        others = (
            self.progress_of(each).start_offset
            for each in self.replicas
            if each != self.broker_id and each in brokers and not brokers[each].fenced
        )
        return min((self.log.start_offset, *others))

    @property
    def last_stable_offset(self) -> int:
        """Where readers that want only committed transactions stop (exclusive)."""
        return self.log.last_stable_offset(self.high_watermark)

    def read_limit(self, isolation_level: int, *, is_follower: bool) -> int:
        """The offset that a reader of this kind may not reach (exclusive)."""
        if is_follower:
            return self.log.end_offset
        if isolation_level == READ_COMMITTED:
            return self.last_stable_offset
        return self.high_watermark
