"""A diskless partition as a broker serves it: any broker, since nobody keeps its records.

What: `core.partition.Partition` for a partition whose order the coordinator keeps and whose bytes
lie in objects. Rules kept: an append gives a ticket, which counts when its commit is known; reads
are answered from what is cached, and ask (FarRead) where that does not suffice; an offset is out of
range only when the coordinator has said so after the request came; the leader epoch of what is in
objects is 0 for good, or the last one of the classic topic that it was, so that no reader is ever
told to truncate. Why `know`: what other brokers committed is heard of
soon, not at once; ListOffsets must see what was acknowledged anywhere before it was asked. Not
here: the machines behind it (`writer.py`, `reader.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from anabranch.core.diskless.answer_buffers import AnswerBuffers, answer_of
from anabranch.core.diskless.assembly import (
    Damaged,
    assembled,
    empty_batch,
    first_not_older,
)
from anabranch.core.diskless.buffer import DisklessTicket
from anabranch.core.diskless.reads import (
    Ask,
    BytesOf,
    FactsOf,
    FarRead,
    RunByTime,
    RunsOf,
    StateOf,
)
from anabranch.core.diskless.rows import LogKey, LogState, Run
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log import validation
from anabranch.core.log.appends import writable
from anabranch.core.log.indexes import NO_TIMESTAMP
from anabranch.core.partition.protocol import ACKS_ALL, Partition, Ticket
from anabranch.core.partition.tail import NO_TAIL
from anabranch.core.types import TopicPartition
from anabranch.core.wire.batch import patch_log_append_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.core.diskless.blocks import Blocks
    from anabranch.core.diskless.coordinates import Coordinates
    from anabranch.core.errors import StorageFault
    from anabranch.core.log.config import LogConfig
    from anabranch.core.log.lookup import AbortedTransaction, TimestampOffset
    from anabranch.core.log.producers import ProducerStates
    from anabranch.core.partition.tail import Tail
    from anabranch.core.step import Mailbox
    from anabranch.core.types import Buffer, TopicId

FoundT = TypeVar("FoundT")
REFUSING_MS = 500
"""How long a partition says that it cannot be read after a call failed, before it asks again."""
ABSENT_MS = 100
"""The same while the coordinator has no row for it, which the active controller is making."""


class Topic(Protocol):
    """What a partition knows of its topic."""

    name: str
    topic_id: TopicId
    config: LogConfig


class PartitionHost(Protocol):
    """What a partition asks of the broker's machines."""

    broker_id: int
    coordinates: Coordinates
    blocks: Blocks
    times: dict[tuple[LogKey, int | None], tuple[int, Run | None]]
    """Answers to searches by time, each with the number of its question."""
    passed: dict[tuple[LogKey, int], int]
    """Offsets before which no record is as new as a time, though runs have such."""

    @property
    def why_off(self) -> str:
        """Why nothing is taken; "" when something is."""

    @property
    def why_deposed(self) -> str:
        """Why the coordinator takes nothing from this broker; "" when it does."""

    @property
    def now_ms(self) -> int:
        """The steady clock at the begin of this step."""

    def append(self, ticket: DisklessTicket) -> None:
        """Take a batch."""

    def read_ahead(self, wanted: BytesOf) -> None:
        """Bring in what a reader will ask for next."""

    def delete_before(self, key: LogKey, offset: int) -> None:
        """Raise a partition's start, in time."""

    def damaged(self, damage: Damaged) -> None:
        """What was read is not what was written."""

    def trouble_of(self, key: LogKey, object_key: str) -> str:
        """Why an object is not read now; "" when it is."""


class DisklessPartition(Partition):
    """One partition of a diskless topic. All calls are for the loop's thread."""

    __slots__ = (
        "_diskless", "_doubted", "_refusal", "_refuses_until_ms", "appended_bytes", "is_leader",
        "key", "known", "leader_epoch", "leader_id", "led_from_epoch", "older", "state", "topic",
        "topic_id", "topic_partition",
    )  # fmt: skip

    knows_producers = False

    def __init__(self, diskless: PartitionHost, topic: Topic, index: int) -> None:
        self._diskless = diskless
        self.topic = topic
        self.topic_id: TopicId = topic.topic_id
        self.topic_partition = TopicPartition(topic.name, index)
        self.key = LogKey(topic.topic_id, index)
        self.leader_id = diskless.broker_id
        self.leader_epoch = self.led_from_epoch = 0
        self.is_leader = True
        self.appended_bytes = 0
        self.state: LogState | None = None
        """None until the coordinator has said it."""
        self.known = -1
        """The number of the newest question about it that was answered."""
        self.older: Tail = NO_TAIL
        """Its remote segments, as far as they were asked for."""
        self._doubted = False
        """Whether they were asked for since one of them could not be read."""
        self._refusal: ApiError | None = None
        self._refuses_until_ms = -1

    # What is known.

    def ensure_current(self, since: int = 0) -> None:
        """Raises FarRead."""
        if self.state is None or (since and self.known < since):
            self._ask(StateOf(self.key, since))

    def take(self, state: LogState) -> bool:
        """What the coordinator, or a commit, told; whether it moves the partition."""
        old = self.state
        self._refusal = None
        if old is None:
            self.state = state
            return True
        start = max(old.start_offset, state.start_offset)
        end = max(old.high_watermark, state.high_watermark)
        tiered_end = max(old.tiered_end, state.tiered_end)
        if tiered_end > old.tiered_end or (
            end == old.high_watermark and state.byte_size != old.byte_size
        ):
            self.older = NO_TAIL  # segments have taken the place of rows, or of other segments
        if (start, end, tiered_end) == (old.start_offset, old.high_watermark, old.tiered_end):
            self.state = old._replace(byte_size=state.byte_size)
            return False
        grown = state.byte_size - old.byte_size
        self.appended_bytes += max(end - old.high_watermark, grown)
        epoch = max(old.leader_epoch, state.leader_epoch)
        self.state = LogState(start, end, state.byte_size, tiered_end, epoch)
        return True

    def refuse(self, code: ErrorCode, why: str, until_ms: int) -> None:
        """Do not ask again before a time: tell this instead."""
        self._refusal, self._refuses_until_ms = ApiError(code, why), until_ms

    def failed(self, fault: StorageFault, left: Mailbox) -> None:
        """It is not asked again for a moment."""
        until_ms = self._diskless.now_ms + REFUSING_MS
        self.refuse(ErrorCode.KAFKA_STORAGE_ERROR, str(fault), until_ms)

    def _ask(self, ask: Ask, length: int = 0) -> NoReturn:
        if why := self._diskless.why_off:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why)
        if self._refusal is not None and self._diskless.now_ms < self._refuses_until_ms:
            raise self._refusal
        raise FarRead(ask, length)

    @property
    def path(self) -> str:
        return f"diskless partition {self.topic_partition}"

    @property
    def start_offset(self) -> int:
        """-1 while it is not known."""
        return -1 if self.state is None else self.state.start_offset

    @property
    def local_start_offset(self) -> int:
        """Where records lie in objects of many partitions, which is as near as they get."""
        return -1 if self.state is None else self.state.first_run_offset

    @property
    def remote_end_offset(self) -> int:
        return self.state.tiered_end if self.state is not None and self._has_older else 0

    @property
    def end_offset(self) -> int:
        """-1 while it is not known."""
        return -1 if self.state is None else self.state.high_watermark

    @property
    def high_watermark(self) -> int:
        """What is committed is all there is."""
        return -1 if self.state is None else self.state.high_watermark

    @property
    def producers(self) -> ProducerStates:
        """The coordinator remembers them: here is none."""
        return ProducerStates(0)

    @property
    def takes_transactions(self) -> bool:
        return False

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Any broker serves it, whatever epoch the metadata had when the client looked."""

    # Appending.

    def append(
        self, records: Buffer, *, required_acks: int, now_ms: int, client: bool = True
    ) -> Ticket:
        """Into the write buffer. Its offsets come with the commit."""
        diskless = self._diskless
        if why := diskless.why_off:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why)
        if why := diskless.why_deposed:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
        config = self.topic.config
        view = writable(records)
        view, batches = validation.check_client(view, config, self.topic_partition, now_ms)
        if len(batches) != 1:
            raise ApiError(ErrorCode.INVALID_RECORD, f"{len(batches)} batches instead of one.")
        _, header = batches[0]
        if header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{self.topic_partition} is diskless: transactions are not possible on it yet.",
            )
        appended_ms = NO_TIMESTAMP
        if config.message_timestamp_type == "LogAppendTime":
            patch_log_append_time(view, 0, header.size_bytes, now_ms)
            appended_ms = now_ms
        ticket = DisklessTicket(
            self.key,
            self.topic_partition,
            view,
            header,
            appended_ms=appended_ms,
            start_offset=self.start_offset,
            since_ms=diskless.now_ms,
        )
        diskless.append(ticket)
        return ticket

    def acknowledged(
        self, ticket: Ticket, led_from_epoch: int, acks: int = ACKS_ALL
    ) -> ErrorCode | None:
        """Whatever `acks` is, when it is committed."""
        assert isinstance(ticket, DisklessTicket)
        return ticket.code

    # Reading.

    def check_offset(self, offset: int) -> None:
        """The caller has asked the coordinator before (`know`)."""
        if not self.start_offset <= offset <= self.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)

    def read(
        self, offset: int, *, max_bytes: int, upto: int, at_least_one: bool
    ) -> tuple[Buffer, ...]:
        """What is there of the wanted runs, or of a remote segment, and FarRead when nothing is.
        Where a restore found no records up to the end, an empty batch leads past it."""
        if self.state is not None and offset < self.state.tiered_end:
            return self._read_older(offset, max_bytes, upto, at_least_one)
        runs, is_far = self._diskless.coordinates.find(self.key, offset, max_bytes)
        if not runs:
            if self._diskless.coordinates.is_lost(self.key, offset, self.high_watermark):
                return (empty_batch(offset, self.high_watermark, self._epoch),)
            self._ask(RunsOf(self.key, offset, max_bytes), max_bytes)
        pieces = self._pieces(runs, is_far=is_far)
        answer = AnswerBuffers(
            offset, upto, max_bytes, at_least_one=at_least_one, leader_epoch=self._epoch
        )
        damage = answer_of(runs[: len(pieces)], pieces, answer)
        buffers = answer.take()
        if damage is not None:
            self._diskless.damaged(damage)
            if not buffers:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(damage))
        return buffers

    def _read_older(
        self, offset: int, max_bytes: int, upto: int, at_least_one: bool
    ) -> tuple[Buffer, ...]:
        try:
            found = self._of_tail(
                offset,
                lambda tail: tail.read(
                    offset, max_bytes=max_bytes, upto=upto, at_least_one=at_least_one
                ),
            )
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            why = f"{self.topic_partition}: no remote segment has offset {offset}"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why) from None
        return (found,) if len(found) else ()

    def _of_tail(self, offset: int, look: Callable[[Tail], FoundT]) -> FoundT:
        """What is found in the remote segments, which hold an offset. One that cannot be read may
        have been compacted, and be removed: then the newest facts are asked for, once. Raises
        FarRead."""
        if self.older.end_offset <= offset and self.state is not None:
            self._ask(FactsOf(self.key, self.state.tiered_end))
        try:
            found = look(self.older)
        except ApiError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR and not self._doubted:
                self.older, self._doubted = NO_TAIL, True
                self._ask(FactsOf(self.key, self.state.tiered_end if self.state else 0))
            self._doubted = False
            raise
        self._doubted = False
        return found

    @property
    def _epoch(self) -> int:
        """Of records in objects."""
        return 0 if self.state is None else self.state.leader_epoch

    @property
    def _has_older(self) -> bool:
        """Whether readers find records in remote segments."""
        return self.state is not None and self.state.start_offset < self.state.tiered_end

    def _pieces(self, runs: list[Run], *, is_far: bool) -> list[list[memoryview]]:
        """The bytes of the first runs, as far as they are there; the others are asked for. Raises
        FarRead when the first one is missing."""
        blocks = self._diskless.blocks
        pieces = []
        for run in runs:
            found = blocks.take(run.object_key, run.byte_offset, run.byte_size)
            if found is None:
                break
            pieces.append(found)
            if not is_far:
                blocks.used(run.object_key)
        if len(pieces) == len(runs):
            return pieces
        if not pieces:
            trouble = self._diskless.trouble_of(self.key, runs[0].object_key)
            if trouble:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, trouble)
        missing = tuple(
            where
            for run in runs[len(pieces) :]
            if not blocks.has(*(where := (run.object_key, run.byte_offset, run.byte_size)))
        )
        wanted = BytesOf(self.key, missing, is_far)
        if not pieces:
            self._ask(wanted, sum(each[2] for each in missing))
        self._diskless.read_ahead(wanted)
        return pieces

    def aborted_transactions(self, first: int, upto: int) -> list[AbortedTransaction]:
        """Those of the classic topic that it was: objects have none. Raises FarRead."""
        tiered_end = 0 if self.state is None else self.state.tiered_end
        if first >= tiered_end:
            return []
        return self._of_tail(
            first, lambda tail: tail.aborted_transactions(first, min(upto, tiered_end))
        )

    # Looking up.

    def epoch_of(self, offset: int) -> int:
        """That of a remote record, as far as it is known here."""
        epoch = self.older.epoch_of(offset)
        return self._epoch if epoch < 0 else epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Whatever a reader's epoch is, its history is ours to the end."""
        return epoch, self.high_watermark

    def offset_for_timestamp(self, timestamp: int, since: int = 0) -> TimestampOffset | None:
        """Raises FarRead."""
        if self._has_older:
            earliest = self._of_tail(
                self.local_start_offset - 1,
                lambda tail: tail.offset_for_timestamp(timestamp, self.start_offset),
            )
            if earliest is not None and earliest.offset < self.local_start_offset:
                return earliest
        while (run := self._run_by_time(timestamp, since)) is not None:
            found = first_not_older(self._whole(run), timestamp, self.start_offset)
            if found is not None:
                return found
            # what is as new as that in this run lies before the start
            self._diskless.passed[self.key, timestamp] = run.end_offset
        return None

    def max_timestamp_offset(self, since: int = 0) -> TimestampOffset | None:
        """Raises FarRead."""
        run = self._run_by_time(None, since)
        newest = None if run is None else first_not_older(self._whole(run), run.max_timestamp, 0)
        if self._has_older:
            older = self._of_tail(
                self.local_start_offset - 1,
                lambda tail: tail.max_timestamp_offset(self.start_offset),
            )
            if older is not None and (newest is None or older.timestamp >= newest.timestamp):
                return older
        return newest

    def _run_by_time(self, timestamp: int | None, since: int) -> Run | None:
        number, run = self._diskless.times.get((self.key, timestamp), (-1, None))
        first = 0 if timestamp is None else self._diskless.passed.get((self.key, timestamp), 0)
        if number < since or (run is not None and run.end_offset <= first):
            self._ask(RunByTime(self.key, timestamp, since, first))
        return run

    def _whole(self, run: Run) -> bytearray:
        (pieces,) = self._pieces([run], is_far=True)
        try:
            return assembled(run, pieces, self._epoch)
        except Damaged as damage:
            self._diskless.damaged(damage)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(damage)) from damage

    # Shortening.

    def delete_before(self, offset: int) -> None:
        """The coordinator is asked to; `low_watermark` tells when it has."""
        self._diskless.delete_before(self.key, offset)
