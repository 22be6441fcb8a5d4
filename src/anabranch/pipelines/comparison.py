"""Comparing the replicas of a range of offsets, batch by batch, as they come from their brokers.

What: `compare` takes one reader for each replica and walks them side by side. Where the bytes are
equal it goes on in whole fetched parts; where they are not, batch by batch, so that each difference
is told with its offset. Rules kept: what only one replica has is a difference, wherever it lies; a
replica that ends early is told as one that is behind, not as one that differs, and always; at most
`MOST_TOLD` differences of a range are told, all are counted.

Not here: compacted logs, whose replicas may differ in what each has removed (compacted.py), and
how a replica is read (replicas.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from anabranch.client.fetch import whole_batches
from anabranch.core.sentences import named
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import BatchHeader, crc_is_valid, read_header

MOST_TOLD = 100
"""Differences of one range that are told: a replica of another topic differs in every batch."""


BYTES, MISSING, CORRUPT, RECORD, LATEST = "bytes", "missing", "corrupt", "record", "latest"
BEHIND, EXPIRED, UNREACHABLE = "behind", "expired", "unreachable"
DIFFERENT = frozenset({BYTES, MISSING, CORRUPT, RECORD, LATEST})
NOT_COMPARED = frozenset({BEHIND, EXPIRED, UNREACHABLE})
"""What says nothing of the replica, only that it could not be compared from an offset on."""


class Difference(NamedTuple):
    """Where replicas differ."""

    offset: int
    kind: str
    """One of DIFFERENT, or of NOT_COMPARED."""
    brokers: tuple[int, ...]
    """Who lacks it, is corrupt, or was not compared; of bytes and records that differ, everyone."""
    sentence: str


class Reader(Protocol):
    """A replica that is read from an offset on."""

    broker_id: int

    async def read(self, offset: int) -> bytes:
        """Whole batches from the one that holds `offset`; empty at the end of what is compared.

        Raises ReplicaEnds.
        """


class ReplicaEnds(Exception):
    """A replica cannot be read any further; the text says why."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


@dataclass(slots=True)
class Compared:
    """What came of a range."""

    bytes_read: int = 0
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)
    first_offset: int = 0
    """A batch that begins before it belongs to the range before."""
    until: int = 1 << 63
    """A batch that begins here or later belongs to the range behind."""

    def tell(self, difference: Difference) -> None:
        """Count a difference, and keep it while there is room; there is for what was not compared,
        as that comes once a replica, and else the range would count as done."""
        if not self.first_offset <= difference.offset < self.until:
            return
        if difference.kind in DIFFERENT:
            self.differing += 1
            if self.differing > MOST_TOLD:
                return
        self.differences.append(difference)


@dataclass(slots=True)
class _Side:
    """One replica on its way: the part it has, where in it, and the next offset to ask for."""

    reader: Reader
    next_offset: int
    part: bytes = b""
    position: int = 0

    @property
    def left(self) -> int:
        return len(self.part) - self.position

    async def fill(self, until: int) -> int:
        """Have a part, if there is more; its size when it was fetched now."""
        if self.left or self.next_offset >= until:
            return 0
        self.part, self.position = await self.reader.read(self.next_offset), 0
        return len(self.part)

    def header(self) -> BatchHeader | None:
        """The batch that comes next; None at the end."""
        return read_header(self.part, self.position) if self.left else None

    def batch(self, header: BatchHeader) -> bytes:
        """The bytes of the next batch."""
        return self.part[self.position : self.position + header.size_bytes]

    def take(self, header: BatchHeader) -> None:
        """Go behind the next batch."""
        self.position += header.size_bytes
        self.next_offset = header.next_offset


async def compare(
    readers: Sequence[Reader], start: int, until: int, *, from_middle: bool = True
) -> Compared:
    """Compare the offsets from `start`, below `until`, of all readers. `from_middle`: whether a
    batch that begins before `start` is told of, too."""
    done = Compared(first_offset=0 if from_middle else start, until=until)
    sides = [_Side(each, start) for each in readers]
    while sides:
        sides = await _filled(sides, until, done)
        if not any(side.left for side in sides):
            return done
        if not _equal_parts(sides):
            _one_batch(sides, done)
    return done


async def _filled(sides: list[_Side], until: int, done: Compared) -> list[_Side]:
    """Those that go on, each with a part unless it is at the end."""
    work: list[Awaitable[int]] = [side.fill(until) for side in sides]
    answers = await asyncio.gather(*work, return_exceptions=True)
    on: list[_Side] = []
    for side, answer in zip(sides, answers, strict=True):
        if isinstance(answer, ReplicaEnds):
            who = (side.reader.broker_id,)
            done.tell(Difference(side.next_offset, answer.kind, who, str(answer)))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            done.bytes_read += answer
            on.append(side)
    return on


def _equal_parts(sides: list[_Side]) -> bool:
    """Go behind what all have in common, if their parts are equal as far as the shortest goes."""
    size = min(side.left for side in sides)
    if not size or len({side.next_offset for side in sides}) != 1:
        return False
    first, *others = (side.part[side.position : side.position + size] for side in sides)
    if any(each != first for each in others):
        return False
    _, next_offset = whole_batches(first)
    for side in sides:
        side.position += size
        side.next_offset = next_offset
    return True


def _one_batch(sides: list[_Side], done: Compared) -> None:
    """Compare the batches that come next, and go behind the first of them."""
    headers = {id(side): side.header() for side in sides}
    base = min(header.base_offset for header in headers.values() if header is not None)
    having = [
        (side, header)
        for side in sides
        if (header := headers[id(side)]) is not None and header.base_offset == base
    ]
    missing = [side.reader.broker_id for side in sides if side not in [each for each, _ in having]]
    if missing:
        last = max(header.last_offset for _, header in having)
        brokers = named(missing, "broker")
        sentence = f"offsets {base} to {last} are not there on {brokers}"
        done.tell(Difference(base, MISSING, tuple(missing), sentence))
    batches = {side.reader.broker_id: side.batch(header) for side, header in having}
    if len(set(batches.values())) > 1:
        done.tell(_difference(base, batches))
    for side, header in having:
        side.take(header)


def _difference(base: int, batches: Mapping[int, bytes]) -> Difference:
    corrupt = tuple(broker for broker, batch in batches.items() if not _is_sound(batch))
    if corrupt:
        brokers = named(corrupt, "broker")
        sentence = f"the batch at offset {base} fails its checksum on {brokers}"
        return Difference(base, CORRUPT, corrupt, sentence)
    told = ", ".join(f"broker {broker}: {_shown(batch)}" for broker, batch in batches.items())
    sentence = f"the batches at offset {base} differ: {told}"
    return Difference(base, BYTES, tuple(batches), sentence)


def _is_sound(batch: Buffer) -> bool:
    header = read_header(batch, 0)
    return crc_is_valid(batch, 0, header.size_bytes)


def _shown(batch: bytes) -> str:
    header = read_header(batch, 0)
    return (
        f"offsets {header.base_offset} to {header.last_offset} in leader epoch "
        f"{header.leader_epoch}, checksum {header.crc:08x}"
    )
