"""The write buffer: batches of many partitions that wait to become an object.

What: one ticket for each batch, in the order of arrival, and how many of them one object takes.
Rule kept: nothing is copied; a ticket holds a slice of the request that brought it. Not here: when
an object is cut (`writer.py`), how it looks (`layout.py`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from anabranch.core.diskless.rows import Batch
from anabranch.core.partition.protocol import UNKNOWN_OFFSET

if TYPE_CHECKING:
    from anabranch.core.diskless.rows import LogKey, Verdict
    from anabranch.core.errors import ErrorCode
    from anabranch.core.types import Buffer, TopicPartition
    from anabranch.core.wire.batch import BatchHeader

MOST_BATCHES = 20_000
"""In one object: its commit is one transaction, which others wait for."""
MOST_RECORDS = (1 << 32) - 1
"""In one object, whose index has four bytes for those of a partition. Hundreds of thousands that
are alike may be one batch of some hundred bytes."""
LOG_APPEND_TIME, CREATE_TIME = 1, 0


class DisklessTicket:
    """One appended batch, from its append to its verdict. `code` is None until that is there."""

    __slots__ = (
        "code",
        "first_offset",
        "header",
        "key",
        "last_offset",
        "log_append_time_ms",
        "max_timestamp",
        "place",
        "records",
        "since_ms",
        "size_bytes",
        "start_offset",
    )

    def __init__(
        self,
        key: LogKey,
        place: TopicPartition,
        records: Buffer,
        header: BatchHeader,
        *,
        appended_ms: int,
        start_offset: int,
        since_ms: int,
    ) -> None:
        self.key = key
        self.place = place
        self.records: Buffer | None = records
        self.header = header
        self.size_bytes = len(records)
        self.first_offset = self.last_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = appended_ms
        self.max_timestamp = header.max_timestamp if appended_ms < 0 else appended_ms
        self.start_offset = start_offset
        self.since_ms = since_ms
        self.code: ErrorCode | None = None

    def batch(self, position: int) -> Batch:
        """As the coordinator is asked to commit it, at a position in its object."""
        header = self.header
        return Batch(
            self.key,
            position,
            self.size_bytes,
            header.record_count,
            self.max_timestamp,
            CREATE_TIME if self.log_append_time_ms < 0 else LOG_APPEND_TIME,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )

    def decided(self, verdict: Verdict) -> None:
        """Take the offsets that the coordinator gave."""
        self.code = verdict.code
        self.records = None
        self.start_offset = verdict.start_offset
        if verdict.base_offset >= 0:
            self.first_offset = verdict.base_offset
            self.last_offset = verdict.base_offset + self.header.record_count - 1

    def failed(self, code: ErrorCode) -> None:
        """It was not taken: the producer sends it again."""
        self.code = code
        self.records = None


class WriteBuffer:
    """What waits for an object, the oldest first."""

    __slots__ = ("_tickets", "size_bytes")

    def __init__(self) -> None:
        self._tickets: deque[DisklessTicket] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._tickets)

    @property
    def oldest_ms(self) -> int:
        """When the oldest batch came."""
        return self._tickets[0].since_ms

    def add(self, ticket: DisklessTicket) -> None:
        """Take a batch."""
        self._tickets.append(ticket)
        self.size_bytes += ticket.size_bytes

    def take(self, most_bytes: int) -> list[DisklessTicket]:
        """The batches of one object: as many as fit, at least one."""
        taken: list[DisklessTicket] = []
        size = records = 0
        tickets = self._tickets
        while tickets and len(taken) < MOST_BATCHES:
            size += tickets[0].size_bytes
            records += tickets[0].header.record_count
            if taken and (size > most_bytes or records > MOST_RECORDS):
                break
            taken.append(tickets.popleft())
        self.size_bytes -= sum(ticket.size_bytes for ticket in taken)
        return taken

    def take_older(self, than_ms: int) -> list[DisklessTicket]:
        """The batches that came at a time, or before."""
        taken = []
        while self._tickets and self._tickets[0].since_ms <= than_ms:
            taken.append(self._tickets.popleft())
        self.size_bytes -= sum(ticket.size_bytes for ticket in taken)
        return taken
