"""Reading a range of offsets of one partition as whole batches, through changes of its leader.

What: `read_range` asks the leader for part after part until it has seen every batch that may hold
an offset of the range; batches come as they were written, the first one perhaps beginning before
the range. Why beside `fetch`: a job of hours must outlive brokers, and must not take another topic
of the same name for its own. Rules kept: progress is judged by offsets, and `patience_seconds`
without any end the reading; an offset that the log no longer has, or does not have yet, is
`RangeLost`, and never passed over in silence. Not here: which of the batches were committed
(committed.py), and what is in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.client.cluster import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Cluster, may_help
from anabranch.client.connection import ConnectionLost
from anabranch.client.fetch import Fetched, fetch, list_offsets, whole_batches
from anabranch.client.fetch_ahead import FetchAhead, after
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.partition.protocol import READ_COMMITTED
from anabranch.core.types import EARLIEST, LATEST, ZERO_TOPIC_ID, Buffer

PART_BYTES = (2 << 20) - (64 << 10)
"""Asked for at a time: an answer of that size still fits into a buffer that is used again."""
WAIT_MS = 500
PATIENCE_SECONDS = 120.0
GONE_SECONDS = 10.0
"""A topic that no broker knows for so long is deleted: a new one is known in less."""

UNKNOWN = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}


class RangeLost(Exception):
    """Offsets that were to be read are not in the log: the text names partition and offsets.

    `resume_at` is where reading can go on, None where nothing is left of the range.
    """

    def __init__(self, place: str, offsets: str, why: str, resume_at: int | None = None) -> None:
        super().__init__(f"{place}: {offsets} cannot be read: {why}")
        self.resume_at = resume_at


class ReadingStalled(Exception):
    """Nothing came of a range for as long as the caller waits, or no whole batch; the text says
    what to look at. `offset` is what was asked for."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


class Part(NamedTuple):
    """Some whole batches of a partition, and the offset that follows them."""

    records: Buffer
    next_offset: int
    aborted: tuple[tuple[int, int], ...]
    """Aborted transactions in them: (producer id, first offset)."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How ranges are read."""

    isolation_level: int = 0
    part_bytes: int = PART_BYTES
    wait_ms: int = WAIT_MS
    patience_seconds: float = PATIENCE_SECONDS
    ahead_bytes: int = 0
    """Of parts that are asked for at a time: several fetches are in flight where it is more than
    two of `part_bytes`, so that a partition far away gives more than one part a round trip."""


@dataclass
class _Range:
    """One range on its way."""

    cluster: Cluster
    topic: str
    partition: int
    topic_id: bytes | None
    until: int
    reading: ReadOptions
    offset: int
    leader: int | None = None
    pause: float = FIRST_PAUSE_SECONDS
    moved_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def missing(self) -> str:
        return f"offsets {self.offset} to {self.until - 1}"

    async def part(self, offset: int) -> Fetched:
        """Ask the leader once for what begins at `offset`. Raises ApiError, ConnectionLost,
        RangeLost."""
        if self.leader is None:
            self.leader = await self._find_leader()
        reading = self.reading
        answers = await fetch(
            self.cluster, self.topic, {self.partition: offset},
            leaders={self.partition: self.leader}, max_wait_ms=reading.wait_ms,
            max_bytes=reading.part_bytes, partition_max_bytes=reading.part_bytes,
            isolation_level=reading.isolation_level, topic_id=self.topic_id or ZERO_TOPIC_ID,
        )  # fmt: skip
        return answers[0]

    async def _find_leader(self) -> int:
        topic = await self.cluster.topic(self.topic)
        known = self.topic_id and any(self.topic_id) and any(topic.topic_id)
        if known and topic.topic_id != self.topic_id:
            why = "the topic was deleted and created again; its records are lost."
            raise RangeLost(self.place, self.missing, why)
        for each in topic.partitions:
            if each.partition_index == self.partition:
                if each.leader_id < 0:
                    why = f"Partition {self.place} has no leader."
                    raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, why)
                return each.leader_id
        why = f"There is no partition {self.place}."
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)

    def taken(self, answer: Fetched, asked: int) -> Part:
        """The whole batches of an answer, from the wanted offset on. Raises ReadingStalled."""
        size, next_offset = whole_batches(answer.records)
        if next_offset <= self.offset:
            raise ReadingStalled(
                f"{self.place}: what broker {self.leader} sent for offset {self.offset} is not a "
                "complete record batch; its copy of the log is damaged there. If another replica "
                "has it whole, make that broker the leader and read again; else begin behind it.",
                self.offset,
            )
        records: Buffer = memoryview(answer.records)[:size]
        aborted = answer.aborted
        if asked < self.offset:
            records, aborted = after(records, aborted, self.offset)
        return Part(records, next_offset, aborted)

    def end_of(self, answer: Fetched) -> int:
        """Where the records end that the leader gives to this reader."""
        is_committed = self.reading.isolation_level == READ_COMMITTED
        return answer.last_stable_offset if is_committed else answer.high_watermark

    def moved_to(self, offset: int) -> None:
        """The range is read up to `offset`."""
        self.offset = offset
        self.moved_at = asyncio.get_running_loop().time()
        self.pause = FIRST_PAUSE_SECONDS

    async def failed(self, fault: ApiError | ConnectionLost) -> None:
        """Look for the leader again after a pause. Raises what ends the reading."""
        self.leader = None
        if isinstance(fault, ApiError):
            if fault.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._check_range()
            elif fault.code in UNKNOWN and self._idle_seconds() > self._gone_seconds():
                why = "the topic or partition was deleted: no broker knows it."
                raise RangeLost(self.place, self.missing, why) from None
            elif not may_help(fault):
                raise fault
        self.check_patience(str(fault))
        await asyncio.sleep(self.pause)
        self.pause = min(self.pause * 2, LONGEST_PAUSE_SECONDS)

    def check_patience(self, why: str) -> None:
        """Raise ReadingStalled when nothing has come for too long."""
        if self._idle_seconds() > self.reading.patience_seconds:
            raise ReadingStalled(
                f"{self.place}: received none of {self.missing} for "
                f"{self.reading.patience_seconds:g} s: {why}",
                self.offset,
            )

    def _idle_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self.moved_at

    def _gone_seconds(self) -> float:
        return min(GONE_SECONDS, self.reading.patience_seconds)

    async def _check_range(self) -> None:
        """Raise RangeLost when the leader does not have the offset; a broker that lags may not have
        it either, and refuses it just so."""
        first, end = await self._listed(EARLIEST), await self._listed(LATEST)
        if self.offset < first:
            why = f"the log begins at offset {first}; earlier records have been deleted."
            resume_at = first if first < self.until else None
            lost = f"offsets {self.offset} to {min(first, self.until) - 1}"
            raise RangeLost(self.place, lost, why, resume_at) from None
        if self.offset > end:
            why = (
                f"the log ends before offset {end}; it was truncated, or the offsets never existed."
            )
            raise RangeLost(self.place, self.missing, why) from None

    async def _listed(self, which: int) -> int:
        found = await list_offsets(self.cluster, self.topic, which, [self.partition])
        return found[self.partition]

    async def check_end(self, answer: Fetched) -> None:
        """Judge an answer without records. Raises RangeLost or ReadingStalled, or ApiError from a
        leader that cannot say yet where the log ends: a new one may know of less than was
        acknowledged until its followers have fetched (KIP-207)."""
        if answer.high_watermark < self.until and self._idle_seconds() > self._gone_seconds():
            end = await self._listed(LATEST)
            if end <= self.offset:
                why = f"the log ends before offset {end}."
                raise RangeLost(self.place, self.missing, why)
        self.check_patience(
            "the leader has them but does not return them; with isolation.level=read_committed it "
            "waits for an open transaction."
        )


async def read_range(
    cluster: Cluster, topic: str, partition: int, start: int, until: int,
    *, topic_id: bytes | None = None, reading: ReadOptions | None = None,
) -> AsyncIterator[Part]:  # fmt: skip
    """The batches of offsets `start` to `until` - 1, part by part, in order.

    `topic_id` is the topic that the offsets were counted in, where that is known. Raises RangeLost,
    ReadingStalled, ApiError for what trying again cannot help.
    """
    reading = reading or ReadOptions()
    state = _Range(cluster, topic, partition, topic_id, until, reading, start)
    in_flight = max(1, reading.ahead_bytes // reading.part_bytes)
    ahead = FetchAhead(state.part, until, in_flight, reading.part_bytes)
    try:
        while state.offset < until:
            try:
                answer, asked = await ahead.next_answer(state.offset)
                if not len(answer.records):
                    ahead.drop()
                    await state.check_end(answer)
                    continue
            except (ApiError, ConnectionLost) as fault:
                ahead.drop()
                await state.failed(fault)
                continue
            part = state.taken(answer, asked)
            ahead.learn(
                part.next_offset, offsets=part.next_offset - state.offset,
                size_bytes=len(part.records), end=state.end_of(answer),
            )  # fmt: skip
            yield part
            state.moved_to(part.next_offset)  # only now: the consumer's time is no silence
    finally:
        ahead.drop()
