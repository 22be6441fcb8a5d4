"""Reading a coordinator's partition back, record by record.

What: a generator that reads the log from its start to its end and yields often, so that the shell
keeps its loop free; it yields a ColdRead where bytes must be warmed first. Rule kept: a record that
is not what it claims to be is a fault of the partition, named with its offset. Not here: what the
records mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from anabranch.core.errors import CorruptLog, ProtocolError
from anabranch.core.log.files import ColdRead
from anabranch.core.wire.batch import BatchHeader, walk
from anabranch.core.wire.records import Record, decode_records

if TYPE_CHECKING:
    from anabranch.core.types import Buffer

READ_BYTES = 256 * 1024
"""Read at a time: small, since each piece is decoded without giving the loop back."""
RECORDS_A_STEP = 200
"""Records that are replayed before the loop is given back."""


class LogReader(ABC):
    """Reads the log of a coordinator's shard, record by record."""

    kind: ClassVar[str]
    """What its records are, for the sentence about one that cannot be read."""

    def __init__(self, shard: Any, read_bytes: int) -> None:
        self.shard = shard
        self.unknown_keys = 0
        self.records = self.read_to = 0
        self._read_bytes = min(read_bytes, READ_BYTES)

    @abstractmethod
    def take(self, record: Record, header: BatchHeader, now_ms: int) -> None:
        """One record; raises ProtocolError when it is not what it claims to be."""

    def decide(self, batches: Buffer, position: int, header: BatchHeader, now_ms: int) -> None:
        """A control batch: passed over, unless a reader says otherwise."""
        del batches, position, header, now_ms

    def read(self, now_ms: int) -> Iterator[ColdRead | None]:
        """Read everything. Raises StorageFault where the log cannot be read, or is not ours.

        Up to the log's end: what was acknowledged may lie above the high watermark that a new
        leader knows. What lies there and was not may yet be lost, so that offsets are told only
        once a record behind it is committed (`Shard.prove`)."""
        replica = self.shard.replica
        offset, upto = replica.start_offset, replica.end_offset
        self.read_to = upto
        while offset < min(upto, replica.end_offset):
            try:
                batches = replica.read(
                    offset, max_bytes=self._read_bytes, upto=upto, at_least_one=True
                )
            except ColdRead as cold:
                cold.forget_frames()
                yield cold
                continue
            if not batches:
                break
            for position, header in walk(batches):
                yield from self._replay(batches, position, header, now_ms)
                offset = header.next_offset

    def _replay(
        self, batches: Buffer, position: int, header: BatchHeader, now_ms: int
    ) -> Iterator[None]:
        try:
            if header.is_control:
                self.decide(batches, position, header, now_ms)
                return
            for count, record in enumerate(decode_records(batches, position)):
                self.take(record, header, now_ms)
                if count % RECORDS_A_STEP == RECORDS_A_STEP - 1:
                    yield
        except ProtocolError as fault:
            raise self._corrupt(header, str(fault)) from fault
        self.records += header.record_count
        yield

    def _corrupt(self, header: BatchHeader, why: str) -> CorruptLog:
        path = self.shard.replica.path
        return CorruptLog(
            f"{path}: the batch at offset {header.base_offset} cannot be read as {self.kind} "
            f"({why}). Restore the folder, or remove it together with what is in it.",
            path=path,
            position=-1,
            first_offset=header.base_offset,
            last_offset=header.last_offset,
        )
