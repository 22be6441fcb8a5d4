"""Which offsets the batches of `__consumer_offsets` commit, as they lie on the simulated disks.

What: the bytes of a batch, decoded into (group, partition, offset). Rule kept: a batch whose
checksum is wrong says nothing; it rotted, and another copy of it is sound. Not here: which batches
are committed (`truth.py`), who was told so (`groups.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.types import TopicPartition
from anabranch.core.wire.batch import crc_is_valid, read_header
from anabranch.core.wire.offsets_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from anabranch.core.wire.records import decode_records

if TYPE_CHECKING:
    from anabranch.core.types import Buffer


class Committed(NamedTuple):
    """An offset as its record has it."""

    group: str
    place: TopicPartition
    offset: int


def commits_in(batch: Buffer) -> tuple[Committed, ...] | None:
    """The offsets that a batch commits; None when its bytes cannot be trusted."""
    if not crc_is_valid(batch, 0, len(batch)):
        return None
    if read_header(batch).is_control:
        return ()
    found = []
    for record in decode_records(batch):
        key = decode_key(record.key or b"")
        if isinstance(key, OffsetCommitKey) and record.value is not None:
            value = decode_value(OffsetCommitValue, record.value)
            place = TopicPartition(key.topic, key.partition)
            found.append(Committed(key.group, place, value.offset))
    return tuple(found)
