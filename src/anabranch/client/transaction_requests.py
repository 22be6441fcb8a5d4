"""What a transactional producer asks of coordinators, in the older and in the newer flow.

Older: partitions and groups are added to the transaction before anything is written there. Newer
(`transaction.version` 2 and EndTxn 5): what is written joins by itself, and the end of a
transaction tells the producer's next epoch. `initialize` chooses, from the levels and versions that
the coordinator tells; it serves both.

Rule kept: a request is repeated, at a new coordinator if that has moved, while it may help and for
`max_block_ms` at most. Source: KIP-98, KIP-360, KIP-447, KIP-890. Not here: which request comes
when (transactional_producer.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from anabranch.client.cluster import Cluster, check
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.groups import GROUP, TRANSACTION, Place
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from anabranch.core.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from anabranch.core.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from anabranch.core.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from anabranch.core.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from anabranch.core.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from anabranch.core.wire.schema import Message

T = TypeVar("T")

FEATURE = "transaction.version"
IMPLICIT_LEVEL = 2
"""Level of the feature from which partitions join by themselves and epochs go up."""
IMPLICIT_END = 5
"""Version of EndTxn that tells the producer's next epoch."""
NEWEST_BEFORE = {
    AddPartitionsToTxnRequest.api_key: 3,
    TxnOffsetCommitRequest.api_key: 4,
    EndTxnRequest.api_key: 4,
}
"""The newest versions of the older flow; AddPartitionsToTxn 4 and above are for brokers."""


class Identity(NamedTuple):
    """Who a producer is until its next epoch."""

    producer_id: int = -1
    epoch: int = -1


class Position(NamedTuple):
    """What a group commits for a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Membership(NamedTuple):
    """The member of a group that commits, so that one which was put out cannot (KIP-447)."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


NO_MEMBER = Membership()


class Retrying(Protocol):
    """Repeats an attempt while that may help, within a limit of time."""

    async def __call__(self, attempt: Callable[[], Awaitable[T]], what: str, /) -> T:
        """What the attempt gives; raises its failure, or one that says what was waited for."""
        ...


class TransactionRequests:
    """One transactional id's requests."""

    def __init__(self, cluster: Cluster, transactional_id: str, retrying: Retrying) -> None:
        self.is_implicit = False
        """Whether what is written joins the transaction by itself."""
        self._cluster = cluster
        self._id = transactional_id
        self._retrying = retrying
        self._coordinator = -1

    async def initialize(self, timeout_ms: int, known: Identity) -> Identity:
        """The producer's identity. With one that is known, the producer goes on with the next
        epoch; else whoever had the id is fenced. A transaction under way is ended first."""
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=timeout_ms,
            producer_id=known.producer_id, producer_epoch=known.epoch,
        )  # fmt: skip
        what = f"The producer id of transactional id {self._id}"
        answer: InitProducerIdResponse = await self._ask(request, _error_code, what)
        connection = await self._connection()
        _, newest_end = connection.versions.get(EndTxnRequest.api_key, (0, -1))
        level = connection.features.get(FEATURE, 0)
        self.is_implicit = level >= IMPLICIT_LEVEL and newest_end >= IMPLICIT_END
        return Identity(answer.producer_id, answer.producer_epoch)

    async def add_partitions(self, who: Identity, places: Collection[Place]) -> None:
        """Have partitions join, in one attempt."""
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(places):
            by_topic[topic].append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )
        await self._ask_once(request, _first_refusal)

    async def commit_offsets(
        self, who: Identity, group: str, offsets: Mapping[Place, Position], member: Membership
    ) -> None:
        """Have a group's offsets join."""
        if not self.is_implicit:
            request = AddOffsetsToTxnRequest(
                transactional_id=self._id, producer_id=who.producer_id, producer_epoch=who.epoch,
                group_id=group,
            )  # fmt: skip
            await self._ask(request, _error_code, f"Group {group} in the transaction")
        commit = self._offset_commit(who, group, offsets, member)

        async def attempt() -> None:
            connection = await self._cluster.connection_to(await self._find(group, GROUP))
            version = self._version(connection, commit)
            response: TxnOffsetCommitResponse = await connection.send(commit, version)
            for topic in response.topics:
                for each in topic.partitions:
                    check(each.error_code, of=f"{topic.name}-{each.partition_index}")

        await self._retrying(attempt, f"Offsets of group {group} for transactional id {self._id}")

    def _offset_commit(
        self, who: Identity, group: str, offsets: Mapping[Place, Position], member: Membership
    ) -> TxnOffsetCommitRequest:
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
        for (topic, partition), position in sorted(offsets.items()):
            by_topic[topic].append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=position.offset,
                    committed_leader_epoch=position.leader_epoch,
                    committed_metadata=position.metadata,
                )
            )  # fmt: skip
        return TxnOffsetCommitRequest(
            transactional_id=self._id, group_id=group, producer_id=who.producer_id,
            producer_epoch=who.epoch, generation_id=member.generation_id,
            member_id=member.member_id, group_instance_id=member.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        )  # fmt: skip

    async def end(
        self, who: Identity, *, commits: bool, failed: Callable[[Exception], None] | None = None
    ) -> Identity:
        """End the transaction; how the producer goes on. `failed` is told of each attempt that
        fails."""
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=who.producer_id, producer_epoch=who.epoch,
            committed=commits,
        )  # fmt: skip
        what = f"The end of the transaction of {self._id}"
        answer: EndTxnResponse = await self._ask(request, _error_code, what, failed)
        if not self.is_implicit or answer.producer_id < 0:
            return who
        return Identity(answer.producer_id, answer.producer_epoch)

    async def _ask(
        self, request: Message, code_of: Callable[[Any], int], what: str,
        failed: Callable[[Exception], None] | None = None,
    ) -> Any:  # fmt: skip
        async def attempt() -> Any:
            try:
                return await self._ask_once(request, code_of)
            except (ApiError, ConnectionLost) as fault:
                if failed is not None:
                    failed(fault)
                raise

        return await self._retrying(attempt, what)

    async def _ask_once(self, request: Message, code_of: Callable[[Any], int]) -> Any:
        try:
            connection = await self._connection()
            response = await connection.send(request, self._version(connection, request))
            check(code_of(response), of=f"Transactional id {self._id}")
            return response
        except (ApiError, ConnectionLost) as fault:
            if getattr(fault, "code", None) is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._coordinator = -1
            raise

    async def _connection(self) -> Connection:
        if self._coordinator not in self._cluster.brokers:
            self._coordinator = await self._find(self._id, TRANSACTION)
        return await self._cluster.connection_to(self._coordinator)

    async def _find(self, key: str, key_type: int) -> int:
        """The broker that coordinates a transactional id or a group."""
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
        response: FindCoordinatorResponse = await self._cluster.send(request)
        found = response.coordinators[0]
        check(found.error_code, found.error_message)
        if found.node_id not in self._cluster.brokers:
            await self._cluster.metadata([])
        if found.node_id not in self._cluster.brokers:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return found.node_id

    def _version(self, connection: Connection, request: Message) -> int:
        key = type(request).api_key
        newest = connection.version_for(key)
        return newest if self.is_implicit else min(newest, NEWEST_BEFORE.get(key, newest))


def _error_code(response: Any) -> int:
    return int(response.error_code)


def _first_refusal(response: AddPartitionsToTxnResponse) -> int:
    """The code of the first partition that was refused itself, 0 without one."""
    codes = [
        each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
        if each.partition_error_code
    ]
    own = [each for each in codes if each != ErrorCode.OPERATION_NOT_ATTEMPTED]
    return next(iter([*own, *codes]), 0)
