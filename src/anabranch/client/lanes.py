"""One partition's batches on their way: in order, a few at a time, again when leaders move.

What: a lane numbers batches as they come, keeps up to `in_flight` of them under way and holds each
until it is acknowledged. Rules kept: after a failure nothing new is sent until every answer of that
round is in; what is not acknowledged is then sent again, in order and with its old numbers, so that
a broker knows a batch that it has as a duplicate. They are sent one at a time, because a broker
remembers only the last five batches: newer ones would push out one whose answer was lost. A batch
that the topic's limit refuses is cut in two, which keeps the numbers; where each part landed is
told. Source: KIP-98, KIP-91 (delivery timeout), KIP-126 (cutting).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

from anabranch.client.cluster import may_help
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.produce import Produced, produce_on
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.partition.protocol import ACKS_ALL
from anabranch.core.sentences import number_of
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import SEQUENCE_MODULUS, patch_producer, read_header
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import Record, build_batch, decode_records

T = TypeVar("T")

MOST_IN_FLIGHT = 5
"""Batches of a producer that a broker remembers, to know one that comes again (KIP-98)."""
TOO_LARGE = {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}


REMEDIES = {
    **dict.fromkeys(TOO_LARGE, "Raise the topic's max.message.bytes, or write smaller records."),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "Lower transaction.timeout.ms, or raise the brokers' transaction.max.timeout.ms."
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Create the topic, or correct its name.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "Name another topic: clients do not write to internal ones, and a name has 1 to 249 ASCII "
        "letters, digits, '.', '_' and '-'."
    ),
}
"""What to do about a refusal, by its code."""


class ProduceFailed(Exception):
    """Records were not acknowledged; the text says which, why, and what to do.

    `code` is what the broker said, None where it said nothing.
    """

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code


class LaneSettings(NamedTuple):
    """What Kafka's producer settings of the same names mean, with Kafka's defaults."""

    acks: int = ACKS_ALL
    is_idempotent: bool = True
    in_flight: int = MOST_IN_FLIGHT
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retries: int = 2**31 - 1
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000

    def pause_ms(self, failures: int) -> int:
        """The pause after so many failures in a row: doubled each time, up to the longest."""
        doubled = self.retry_backoff_ms << min(failures - 1, 20)
        return min(doubled, self.retry_backoff_max_ms)


class OutgoingBatch(NamedTuple):
    """One record batch for one partition; who wrote it and its checksum are filled in here."""

    topic: str
    partition: int
    batch: bytearray | memoryview


class Landed(NamedTuple):
    """Where a batch is in its partition. `base_offset` is -1 where the broker had the batch already
    and no longer knows its offset."""

    base_offset: int
    record_count: int


class Ticket:
    """Counts the acknowledgements that one `send` waits for, then calls back."""

    def __init__(self, left: int, done: Callable[[], None]) -> None:
        self.left = left
        self.landed: list[Landed] = []
        self._done = done

    def acknowledged(self, landed: Landed) -> None:
        """One batch less is waited for."""
        self.left -= 1
        self.landed.append(landed)
        if not self.left:
            self._done()


class Link(Protocol):
    """What a lane needs of its producer."""

    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    newest_produce: int
    """The newest version of Produce to use."""

    async def leader_of(self, topic: str, partition: int) -> Connection:
        """A connection to the leader."""
        ...

    async def refresh(self, topic: str) -> None:
        """Ask who leads."""
        ...

    def fail(self, fault: Exception) -> None:
        """End the producer."""
        ...


class UnacknowledgedBatch(NamedTuple):
    """A batch that is not acknowledged yet."""

    batch: bytearray | memoryview
    deadline: float
    ticket: Ticket


class Lane:
    """What is under way to one partition. Its task ends when nothing is, and begins again."""

    def __init__(self, link: Link, topic: str, partition: int, settings: LaneSettings) -> None:
        self.topic = topic
        self.partition = partition
        self.task: asyncio.Task[None] | None = None
        self._link = link
        self._settings = settings
        self._sequence = 0
        self._unsure = 1
        """Batches that are sent one at a time before several are: those that a broker may have, and
        a lane's first, as a broker that knows nothing of the producer takes any number."""
        self._failures = 0
        self._fault: Exception | None = None
        self._waiting: deque[UnacknowledgedBatch] = deque()
        self._answers: deque[asyncio.Task[Landed]] = deque()
        """Of the first batches of `_waiting`, in their order."""

    @property
    def is_idle(self) -> bool:
        """Whether everything is acknowledged."""
        return not self._waiting

    def put(self, outgoing: OutgoingBatch, ticket: Ticket) -> None:
        """Number a batch and have it sent."""
        batch = outgoing.batch
        header = read_header(batch)
        if self._settings.is_idempotent:
            patch_producer(
                batch, 0, header.size_bytes, producer_id=self._link.producer_id,
                producer_epoch=self._link.producer_epoch, base_sequence=self._sequence,
                is_transactional=self._link.transactional_id is not None,
            )  # fmt: skip
            self._sequence = (self._sequence + header.record_count) % SEQUENCE_MODULUS
        else:
            patch_producer(
                batch, 0, header.size_bytes, producer_id=-1, producer_epoch=-1, base_sequence=-1
            )
        now = asyncio.get_running_loop().time()
        deadline = now + self._settings.delivery_timeout_ms / 1000
        self._waiting.append(UnacknowledgedBatch(batch, deadline, ticket))
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                try:
                    await self._send_all()
                except (ApiError, ConnectionLost) as fault:
                    await self._settle()
                    await self._judge(fault)
        except Exception as fault:  # also a bug: the job must not wait for ever
            self._link.fail(fault)
        finally:
            for each in self._answers:
                each.cancel()

    async def _send_all(self) -> None:
        """Send what waits until all of it is acknowledged; raises the first batch's failure."""
        connection = await self._in_time(self._link.leader_of(self.topic, self.partition))
        while self._waiting:
            most = 1 if self._unsure else self._settings.in_flight
            while len(self._answers) < min(most, len(self._waiting)):
                batch = self._waiting[len(self._answers)].batch
                self._answers.append(asyncio.create_task(self._attempt(connection, batch)))
            await self._in_time(asyncio.wait([self._answers[0]]))
            landed = self._answers[0].result()
            self._answers.popleft()
            self._waiting.popleft().ticket.acknowledged(landed)
            self._unsure = max(0, self._unsure - 1)
            self._failures = 0

    async def _attempt(self, connection: Connection, batch: Buffer) -> Landed:
        try:
            produced = await produce_on(
                connection, self.topic, self.partition, batch,
                acks=self._settings.acks, timeout_ms=self._settings.request_timeout_ms,
                transactional_id=self._link.transactional_id, newest=self._link.newest_produce,
            )  # fmt: skip
        except ApiError as fault:
            if fault.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                raise
            produced = Produced(-1, -1)
        return Landed(produced.base_offset, read_header(batch).record_count)

    async def _settle(self) -> None:
        """Wait for every answer, and keep the batches that were not acknowledged, in order."""
        answers = list(self._answers)
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        self._answers.clear()
        sent = [self._waiting.popleft() for _ in answers]
        for waiting, outcome in zip(reversed(sent), reversed(outcomes)):
            if isinstance(outcome, Landed):
                waiting.ticket.acknowledged(outcome)
            else:
                self._waiting.appendleft(waiting)
        kept = sum(not isinstance(outcome, Landed) for outcome in outcomes)
        self._unsure = max(self._unsure + kept - len(outcomes), kept)

    async def _judge(self, fault: ApiError | ConnectionLost) -> None:
        """Pause before another attempt, or raise why there is none."""
        if isinstance(fault, ApiError) and fault.code in TOO_LARGE and self._cut_first():
            return
        self._failures += 1
        if not may_help(fault) or self._failures > self._settings.retries:
            raise ProduceFailed(
                f"{self._what()} could not be written after "
                f"{number_of(self._failures, 'attempt')}: "
                f"{_words(fault)}{remedy(fault)}",
                fault.code if isinstance(fault, ApiError) else None,
            )
        self._fault = fault
        await self._in_time(asyncio.sleep(self._settings.pause_ms(self._failures) / 1000))
        with contextlib.suppress(ApiError, ConnectionLost):  # the next attempt tells
            await self._in_time(self._link.refresh(self.topic))

    async def _in_time(self, what: Awaitable[T]) -> T:
        """`what`, unless the first batch's time ends before."""
        try:
            async with asyncio.timeout_at(self._waiting[0].deadline):
                return await what
        except TimeoutError:
            last = "" if self._fault is None else f" The last attempt ended so: {self._fault}"
            raise ProduceFailed(
                f"{self._what()} were not acknowledged within delivery.timeout.ms "
                f"({self._settings.delivery_timeout_ms} ms).{last} Check that the partition has a "
                "leader and enough in-sync replicas, then write again; or allow more time."
            ) from None

    def _what(self) -> str:
        count = read_header(self._waiting[0].batch).record_count
        return f"{number_of(count, 'record')} for {self.topic}-{self.partition}"

    def _cut_first(self) -> bool:
        """Replace the first batch by its two halves, unless it is a single record."""
        batch, deadline, ticket = self._waiting[0]
        if read_header(batch).record_count < 2:
            return False
        self._waiting.popleft()
        self._unsure += 1
        ticket.left += 1
        for half in reversed(cut_batch(batch)):
            self._waiting.appendleft(UnacknowledgedBatch(half, deadline, ticket))
        return True


def cut_batch(batch: Buffer) -> tuple[bytearray, bytearray]:
    """A batch of several records as two, with the sequence numbers that the records had."""
    header = read_header(batch)
    records = decode_records(batch)
    middle = len(records) // 2

    def part(records: list[Record], sequence: int) -> bytearray:
        return build_batch(
            [each._replace(offset=index) for index, each in enumerate(records)],
            codec=Codec(header.codec), producer_id=header.producer_id,
            producer_epoch=header.producer_epoch, base_sequence=sequence,
            transactional=header.is_transactional,
        )  # fmt: skip

    following = -1
    if header.base_sequence >= 0:
        following = (header.base_sequence + middle) % SEQUENCE_MODULUS
    return part(records[:middle], header.base_sequence), part(records[middle:], following)


def _words(fault: ApiError | ConnectionLost) -> str:
    return f"{fault.code.name}: {fault}" if isinstance(fault, ApiError) else str(fault)


def remedy(fault: Exception) -> str:
    """What to do about a fault, behind its sentence; empty where nothing is known to help."""
    if isinstance(fault, ConnectionLost):
        end = "" if str(fault).endswith(("?", ".")) else "."
        return f"{end} Check the addresses of the bootstrap servers, and that the brokers run."
    if isinstance(fault, ApiError) and fault.code in REMEDIES:
        return f" {REMEDIES[fault.code]}"
    return ""
