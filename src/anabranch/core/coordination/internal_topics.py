"""What the topics of all coordinators have in common: where a name belongs, and how many replicas.

Source: Kafka's `Utils.abs(name.hashCode) % partitions`, with Java's string hash, so that every
broker and tool finds the same partition. Not here: each topic's own settings
(`groups/offsets_topic.py`, `transactions/topic.py`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from anabranch.core.controller.brokers.cordons import cordoned

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage

HASHES_KEPT = 16_384
LONGEST_KEPT = 255
"""Characters of a name that is kept with what follows from it; a client may send 32 KB of them."""


def java_hash(text: str) -> int:
    """Java's `String.hashCode` with the sign bit cleared, as Kafka's `Utils.abs` does."""
    return _kept_hash(text) if len(text) <= LONGEST_KEPT else _hash(text)


def _hash(text: str) -> int:
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    number = 0
    for unit in units:
        number = (31 * number + unit) & 0xFFFF_FFFF
    return number & 0x7FFF_FFFF


_kept_hash = lru_cache(HASHES_KEPT)(_hash)


def fitting_factor(most: int, image: MetadataImage) -> int:
    """As many replicas as there are brokers that may be given one, at most so many."""
    return max(1, min(most, len(image.brokers) - len(cordoned(image))))
