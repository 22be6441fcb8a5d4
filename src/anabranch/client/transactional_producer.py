"""A producer whose batches, on any number of partitions, and offsets of groups become visible all
together or not at all.

    producer = TransactionalProducer(cluster, "orders-0")
    await producer.init()           # fences who had the id before, and ends its transaction
    producer.begin()
    handle = await producer.produce("orders", 3, batch)
    await producer.send_offsets("readers", {("clicks", 0): Position(42)})
    await producer.commit()         # or abort()
    (await handle)[0].base_offset

What: the states of a transaction. Sending is the idempotent producer's (producer.py), requests to
coordinators are in transaction_requests.py. Where each end of a transaction gives the producer a
new epoch (KIP-890), sequence numbers begin at 0 again; else they go on, and the epoch goes up only
after an abort that left something without an answer (KIP-360), so that a batch which is still on
its way is refused.

Rules kept: `init` chooses one of the two flows, and a producer keeps it; a fenced producer stays
fenced, as another one may be at work; a commit without an answer is `CommitUnknown`, and is never
taken for either outcome. `close` ends nothing: the coordinator aborts what is open when
`transaction_timeout_ms` are over, or when `init` is called for the same id.
Source: KIP-98, KIP-360, KIP-447, KIP-588, KIP-890. Not here: two-phase commit (KIP-939), which no
released broker serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from anabranch.client.cluster import Cluster
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.groups import Place
from anabranch.client.lanes import Landed, LaneSettings, OutgoingBatch, ProduceFailed
from anabranch.client.prepared_transactions import Prepared
from anabranch.client.produce import BEFORE_IMPLICIT, BY_NAME
from anabranch.client.producer import Producer, ProducerSettings
from anabranch.client.transaction_requests import (
    NO_MEMBER,
    Identity,
    Membership,
    Position,
    TransactionRequests,
)
from anabranch.core.errors import ApiError, ErrorCode

TRANSACTION_TIMEOUT_MS = 60_000
RETRY_BACKOFF_MS = 20
"""The first pause after a refusal: most often the transaction before is being ended, which takes
the coordinator some milliseconds."""
DEFAULTS = ProducerSettings(LaneSettings(retry_backoff_ms=RETRY_BACKOFF_MS))

FENCING = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
UNCERTAIN = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Refusals of a request that may have been carried out."""


class ProducerFenced(ApiError):
    """Another producer has taken the transactional id over, or the coordinator aborted the
    transaction because it took too long. Nothing more can be done with this producer."""


class MustAbort(Exception):
    """The transaction cannot be committed; the text says why. After `abort` the producer goes on.

    `code` is what a broker said, None where it said nothing.
    """

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code


class CommitUnknown(Exception):
    """A commit has no answer: it may have been made. `init`, of this producer or of another one
    with the same id, waits until the coordinator has ended the transaction one way or the other."""


class State(Enum):
    """What a producer may do next; see `ALLOWED`."""

    NEW = "not initialized: call init()"
    READY = "outside a transaction: call begin()"
    OPEN = "in a transaction: call commit() or abort()"
    FAILED = "in a transaction that failed: call abort()"
    PREPARED = "ended by who was given the transaction: call init()"
    UNKNOWN = "waiting for the outcome of a commit: call init()"
    FENCED = "fenced: make a new producer if this one should go on"


ALLOWED: Mapping[str, frozenset[State]] = {
    "init": frozenset({State.NEW, State.READY, State.PREPARED, State.UNKNOWN}),
    "begin": frozenset({State.READY}),
    "produce": frozenset({State.OPEN}),
    "send_offsets": frozenset({State.OPEN}),
    "prepare": frozenset({State.OPEN}),
    "commit": frozenset({State.OPEN}),
    "abort": frozenset({State.OPEN, State.FAILED}),
}


class TransactionalProducer(Producer):
    """One transactional id's producer, used in one event loop, one transaction after the other."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        settings: ProducerSettings = DEFAULTS,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        super().__init__(cluster, settings)
        self.transactional_id: str = transactional_id
        self.state = State.NEW
        self._timeout_ms = transaction_timeout_ms
        self._requests = TransactionRequests(cluster, transactional_id, self._while_it_may_help)
        self._has_begun = False
        """Whether the coordinator may know of this transaction."""
        self._wanted: set[Place] = set()
        self._joined: set[Place] = set()
        self._joining = asyncio.Lock()

    async def init(self) -> None:
        """Get the producer's id and epoch. Who had the transactional id before is fenced, and its
        transaction is ended first: committed if that was decided, else aborted.

        Raises ApiError, ConnectionLost, or ProduceFailed after `max_block_ms`.
        """
        self._check("init")
        await self._initialize(Identity())
        self.state = State.READY

    def begin(self) -> None:
        """Begin a transaction; no request is sent."""
        self._check("begin")
        self._has_begun = False
        self._wanted.clear()
        self._joined.clear()
        self.state = State.OPEN

    async def send(self, batches: Sequence[OutgoingBatch]) -> None:
        """As `Producer.send`, in the transaction."""
        self._takes_part((each.topic, each.partition) for each in batches)
        await super().send(batches)

    async def produce(
        self, topic: str, partition: int, batch: bytearray | memoryview
    ) -> asyncio.Future[tuple[Landed, ...]]:
        """As `Producer.produce`, in the transaction: the batch is there for readers of committed
        records after `commit`."""
        self._takes_part([(topic, partition)])
        return await super().produce(topic, partition, batch)

    async def send_offsets(
        self, group: str, offsets: Mapping[Place, Position], member: Membership = NO_MEMBER
    ) -> None:
        """Have the group commit offsets if the transaction commits. Raises MustAbort or
        ProducerFenced."""
        self._check("send_offsets")
        if not offsets:
            return
        self._has_begun = True
        try:
            await self._requests.commit_offsets(self._who, group, offsets, member)
        except (ApiError, ConnectionLost, ProduceFailed) as fault:
            self.fail(fault)
            raise self._failure() from fault

    async def commit(self) -> None:
        """Wait for every batch, and make the transaction visible.

        Raises MustAbort or ProducerFenced, where nothing is visible and nothing will be; or
        CommitUnknown.
        """
        self._check("commit")
        await self._acknowledged()
        if self._has_begun:
            await self._commit()
        self.state = State.READY

    async def prepare(self) -> Prepared | None:
        """Wait for every batch, and leave the transaction to who is given the result, which
        `prepared_transactions` ends; None where nothing was written. Raises MustAbort or
        ProducerFenced."""
        self._check("prepare")
        await self._acknowledged()
        if not self._has_begun:
            self.state = State.READY
            return None
        self.state = State.PREPARED
        return Prepared(self.transactional_id, *self._who, self._requests.is_implicit)

    async def _acknowledged(self) -> None:
        try:
            await self.flush()
        except Exception:
            raise self._failure() from None

    async def abort(self) -> None:
        """Give up what is not acknowledged, and have the rest never be visible.

        Raises ProducerFenced; or ApiError, ConnectionLost, ProduceFailed, after which it may be
        called again.
        """
        self._check("abort")
        is_clean = self.state is State.OPEN and all(each.is_idle for each in self._lanes.values())
        await self._give_up(MustAbort(f"{self._what()} was aborted before the batch was written."))
        self._held_bytes = 0
        self.failure = None
        self.state = State.FAILED
        try:
            await self._abort(is_clean=is_clean)
        except ApiError as fault:
            if fault.code not in FENCING:
                raise
            self.fail(fault)
            raise self._failure() from fault
        self.state = State.READY

    def fail(self, fault: Exception) -> None:
        """The transaction has failed; the first failure is the one that is told."""
        if getattr(fault, "code", None) in FENCING and not isinstance(fault, ProducerFenced):
            fault = self._fenced(fault)
        if isinstance(fault, ProducerFenced):
            self.state = State.FENCED
        elif self.state is State.OPEN:
            self.state = State.FAILED
        super().fail(fault)

    async def leader_of(self, topic: str, partition: int) -> Connection:
        """A connection to the leader of a partition that may be written in the transaction."""
        if not self._requests.is_implicit:
            async with self._joining:
                if (topic, partition) not in self._joined:
                    joining = self._wanted - self._joined
                    self._has_begun = True
                    await self._requests.add_partitions(self._who, joining)
                    self._joined |= joining
        return await super().leader_of(topic, partition)

    # How it is done.

    @property
    def _who(self) -> Identity:
        return Identity(self.producer_id, self.producer_epoch)

    def _becomes(self, who: Identity) -> None:
        """Sequence numbers begin at 0 in another epoch."""
        if who != self._who:
            self._lanes.clear()
        self.producer_id, self.producer_epoch = who

    def _takes_part(self, places: Iterable[Place]) -> None:
        self._check("produce")
        self._wanted.update(places)
        self._has_begun |= self._requests.is_implicit

    async def _initialize(self, known: Identity) -> None:
        self._becomes(await self._requests.initialize(self._timeout_ms, known))
        self.newest_produce = BY_NAME if self._requests.is_implicit else BEFORE_IMPLICIT

    async def _end(self, *, commits: bool, failed: list[Exception]) -> None:
        self._becomes(await self._requests.end(self._who, commits=commits, failed=failed.append))

    async def _commit(self) -> None:
        failed: list[Exception] = []
        try:
            await self._end(commits=True, failed=failed)
        except (ApiError, ConnectionLost, ProduceFailed) as fault:
            self.fail(self._fenced(fault) if _was_ended(fault) else fault)
            if _is_certain(fault, failed):
                raise self._failure() from fault
            if self.state is not State.FENCED:
                self.state, self.failure = State.UNKNOWN, None
            raise CommitUnknown(
                f"{self._what()}: the coordinator did not confirm the commit: {fault} It may have "
                "been made: call init(), and look for what it would have left."
            ) from fault

    async def _abort(self, *, is_clean: bool) -> None:
        bumps = not is_clean and not self._requests.is_implicit
        try:
            if self._has_begun:
                await self._end(commits=False, failed=[])
        except ApiError as fault:
            if not (bumps and _was_ended(fault)):  # else the coordinator had not heard of it
                raise
        if bumps:
            await self._initialize(self._who)

    def _check(self, call: str) -> None:
        if self.state in ALLOWED[call]:
            return
        if self.failure is not None:
            raise self._failure()
        raise RuntimeError(f"{call}() came at a wrong time: {self._what()} is {self.state.value}.")

    def _failure(self) -> Exception:
        """What to raise for the first failure."""
        if isinstance(self.failure, ProducerFenced):
            return self.failure
        return MustAbort(
            f"{self._what()} cannot be committed: {self.failure} Call abort().",
            getattr(self.failure, "code", None),
        )

    def _fenced(self, fault: Exception) -> ProducerFenced:
        code = ErrorCode(getattr(fault, "code", ErrorCode.PRODUCER_FENCED))
        return ProducerFenced(
            code,
            f"{self._what()} is fenced ({code.name}): another producer with this id has started, "
            f"or a transaction took longer than its timeout ({self._timeout_ms} ms). Stop the "
            "other one or give each its own id; or raise transaction.timeout.ms; and start again.",
        )

    def _what(self) -> str:
        return f"The transaction of {self.transactional_id!r}"


def _was_ended(fault: Exception) -> bool:
    """Whether the coordinator has ended the transaction by itself: what Kafka then says of it."""
    return getattr(fault, "code", None) is ErrorCode.INVALID_TXN_STATE


def _is_certain(fault: Exception, failed: Sequence[Exception]) -> bool:
    """Whether a commit that failed was not made: the very first answer refused it."""
    return len(failed) == 1 and isinstance(fault, ApiError) and fault.code not in UNCERTAIN
