"""What is in memory of remote segments, and what is asked for.

What: pieces of their batches on a grid of `PIECE_BYTES`, so that a reader that goes on reads no
byte twice, with some that it will want next, and whole indexes, decoded. A call that lacks
something raises RemoteRead, which names what, and its answer is told by `brought`. Rules kept: both
caches are bounded, and what was used longest ago goes first; nothing here is needed, so that all of
it may be lost; what could not be read, or is damaged, is refused for `REFUSING_MS` instead of being
asked for again at once. Not here: the store, and how many calls it gets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from anabranch.core.diskless.blocks import Blocks
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.log.files import Bringer, ColdRead
from anabranch.core.log.indexes import (
    AbortedRange,
    InvalidIndex,
    OffsetIndex,
    TimeIndex,
    decode_aborted,
)
from anabranch.core.types import Buffer

PIECE_BYTES = 1 << 20
"""Read at a time: large enough that a call of a store is not mostly waiting."""
AHEAD_PIECES = 3
"""Asked for in the same call by a reader that goes on where another piece ended."""
REFUSING_MS = 500
"""As for diskless partitions: a client that is refused asks again soon."""
MOST_TROUBLES = 1_000
"""Objects whose trouble is remembered: the oldest are asked for again."""


class PiecesOf(NamedTuple):
    """(position, length) ranges of an object."""

    object_key: str
    ranges: tuple[tuple[int, int], ...]


class WholeOf(NamedTuple):
    """An index, of any size."""

    object_key: str


RemoteAsk: TypeAlias = PiecesOf | WholeOf


class RemoteRead(ColdRead):
    """Something of a remote segment is not in memory. `length` is how many bytes it may bring."""

    bringer = Bringer.REMOTE

    def __init__(self, ask: RemoteAsk, length: int) -> None:
        Exception.__init__(self, f"{ask!r} is not in memory")
        self.ask, self.position, self.length = ask, 0, length
        self.brings_bytes = isinstance(ask, PiecesOf)


class RemoteCache:
    """What one broker has in memory of the remote segments of all its partitions."""

    def __init__(self, most_bytes: int, most_index_bytes: int, now_ms: Callable[[], int]) -> None:
        self._blocks = Blocks(most_bytes)
        self.most_index_bytes = most_index_bytes
        """May change."""
        self._index_bytes = 0
        self._indexes: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        """Decoded, and the size of their bytes."""
        self._encoded: dict[str, Buffer] = {}
        """Brought, and not looked at yet."""
        self._troubles: OrderedDict[str, tuple[int, str]] = OrderedDict()
        """Until when an object is refused, and why."""
        self._now_ms = now_ms
        self.on_damaged: Callable[[str, str], None] = lambda _object_key, _why: None
        """Told of each object that is not what was written, and why."""

    @property
    def held_bytes(self) -> tuple[int, int]:
        """Of batches, and of indexes."""
        return self._blocks.size_bytes, self._index_bytes

    # What tails ask.

    def piece(self, object_key: str, position: int, length: int, byte_size: int) -> Buffer:
        """A range of an object of `byte_size` bytes. Raises RemoteRead, or ApiError."""
        self._refuse(object_key)
        parts = self._blocks.take(object_key, position, length)
        if parts is not None:
            self._blocks.used(object_key)
            return parts[0] if len(parts) == 1 else b"".join(parts)
        first = position // PIECE_BYTES * PIECE_BYTES
        end = position + length
        missing = self._missing(object_key, range(first, end, PIECE_BYTES), byte_size)
        begin = missing[0][0]
        if begin > 0 and self._blocks.has(object_key, begin - 1, 1):
            end = min(end + AHEAD_PIECES * PIECE_BYTES, byte_size)
            missing = self._missing(object_key, range(begin, end, PIECE_BYTES), byte_size)
        raise RemoteRead(PiecesOf(object_key, missing), sum(size for _, size in missing))

    def _missing(self, object_key: str, grid: range, byte_size: int) -> tuple[tuple[int, int], ...]:
        ranges = [(each, min(PIECE_BYTES, byte_size - each)) for each in grid]
        return tuple(each for each in ranges if not self._blocks.has(object_key, *each))

    def offset_index(self, object_key: str, segment_bytes: int) -> OffsetIndex:
        """A segment's offset index."""
        found: OffsetIndex = self._index(
            object_key, lambda encoded: OffsetIndex.decode(encoded, segment_bytes)
        )
        return found

    def time_index(self, object_key: str) -> TimeIndex:
        """A segment's time index."""
        found: TimeIndex = self._index(object_key, TimeIndex.decode)
        return found

    def aborted(self, object_key: str) -> list[AbortedRange]:
        """What a segment's transaction index lists."""
        found: list[AbortedRange] = self._index(object_key, decode_aborted)
        return found

    def _index(self, object_key: str, decode: Callable[[bytes], Any]) -> Any:
        self._refuse(object_key)
        known = self._indexes.get(object_key)
        if known is not None:
            self._indexes.move_to_end(object_key)
            return known[0]
        encoded = self._encoded.pop(object_key, None)
        if encoded is None:
            raise RemoteRead(WholeOf(object_key), 0)
        try:
            found = decode(bytes(encoded))
        except InvalidIndex as problem:
            raise self.damaged(object_key, f"object {object_key} is damaged: {problem}") from None
        self._indexes[object_key] = found, len(encoded)
        self._index_bytes += len(encoded)
        while self._index_bytes > self.most_index_bytes and len(self._indexes) > 1:
            self._index_bytes -= self._indexes.popitem(last=False)[1][1]
        return found

    def damaged(self, object_key: str, why: str) -> ApiError:
        """What was read is not what was written: it is read again, after a moment. The error that
        readers are told."""
        self._blocks.forget(object_key)
        self.on_damaged(object_key, why)
        self._trouble(object_key, why)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why)

    def _trouble(self, object_key: str, why: str) -> None:
        self._troubles[object_key] = self._now_ms() + REFUSING_MS, why
        if len(self._troubles) > MOST_TROUBLES:
            self._troubles.popitem(last=False)

    def _refuse(self, object_key: str) -> None:
        trouble = self._troubles.get(object_key)
        if trouble is None:
            return
        until_ms, why = trouble
        if self._now_ms() < until_ms:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, why)
        del self._troubles[object_key]

    # What came.

    def brought(self, ask: RemoteAsk, result: Sequence[Buffer] | StorageFault) -> None:
        """What a call gave, for the ranges in their order or for the whole, or the fault that it
        raised. Readers look at it in the same step: what does not fit may go after that."""
        if isinstance(result, StorageFault):
            self._trouble(ask.object_key, str(result))
        elif isinstance(ask, PiecesOf):
            for (position, _), piece in zip(ask.ranges, result, strict=True):
                self._blocks.add(ask.object_key, [(position, piece)])
        else:
            self._encoded[ask.object_key] = result[0]
