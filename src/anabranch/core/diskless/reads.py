"""What a partition asks for when it cannot answer from memory.

A read that needs the coordinator or the store raises FarRead, which belongs to the family of
ColdRead: the handler gathers them for all its partitions and gives back `Cold`. They are then
handed to `DisklessReader.bring`, which marks the Cold as changed when all have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from anabranch.core.log.files import Bringer, ColdRead

if TYPE_CHECKING:
    from anabranch.core.diskless.rows import LogKey


class StateOf(NamedTuple):
    """Where a partition stands, asked after question number `since`."""

    key: LogKey
    since: int


class RunsOf(NamedTuple):
    """Where the records from an offset on lie."""

    key: LogKey
    offset: int
    max_bytes: int


class RunByTime(NamedTuple):
    """The first run, from an offset on, that is not older than a timestamp (None: the one with the
    greatest), asked after question number `since`."""

    key: LogKey
    timestamp: int | None
    since: int
    first: int = 0


class BytesOf(NamedTuple):
    """(position, length) ranges of objects, by the object's key."""

    key: LogKey
    ranges: tuple[tuple[str, int, int], ...]
    is_far: bool


class FactsOf(NamedTuple):
    """The remote segments of a partition, which reach up to an offset at least."""

    key: LogKey
    upto: int


class ClaimsOf(NamedTuple):
    """What a call of `TieringClaims` gives, for a tiering job; each has a number of its own."""

    number: int
    call: str
    arguments: tuple[Any, ...]


Ask: TypeAlias = StateOf | RunsOf | RunByTime | BytesOf | FactsOf | ClaimsOf


class FarRead(ColdRead):
    """The answer is not in memory. `length` is how many bytes it may bring."""

    bringer = Bringer.DISKLESS

    def __init__(self, ask: Ask, length: int = 0) -> None:
        Exception.__init__(self, f"{ask!r} is not in memory")
        self.ask = ask
        self.brings_bytes = isinstance(ask, BytesOf)
        self.position, self.length = 0, length
