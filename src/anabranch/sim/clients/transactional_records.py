"""The records of transactions: which have keys, which are tombstones, and how they are written.

What: of a compacted topic each record has one of a few keys, so that later transactions supersede
earlier ones; some are tombstones, which name themselves in a header. Rule kept: key and kind follow
from the value alone. Not here: who writes them (`transactional.py`, `transactional_loop.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from anabranch.core.wire.records import Record
from anabranch.sim.history import WRITTEN_AS
from anabranch.sim.transaction_history import Written

if TYPE_CHECKING:
    from anabranch.core.types import TopicPartition

ONE_TOMBSTONE_IN = 7


class Keying(NamedTuple):
    """The topics whose records have keys, and how many keys there are."""

    topics: frozenset[str] = frozenset()
    keys: int = 1

    def written(self, place: TopicPartition, value: bytes) -> Written:
        """A record that is to be written."""
        if place.topic not in self.topics:
            return Written(place, value)
        number = crc32(value)
        is_tombstone = number // self.keys % ONE_TOMBSTONE_IN == 0
        return Written(place, value, key=b"k%d" % (number % self.keys), is_tombstone=is_tombstone)


def record_of(written: Written, index: int, now_ms: int) -> Record:
    """What is sent for it."""
    if written.is_tombstone:
        return Record(index, now_ms, written.key, None, ((WRITTEN_AS, written.value),))
    return Record(index, now_ms, written.key, written.value)
