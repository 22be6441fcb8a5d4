"""An object read without the coordinator: its batches, with all that a commit would say of them.

What: every checksum is checked, the object's and each batch's. Used by `anabranch diskless` alone:
brokers read ranges. Not here: the layout (`layout.py`), offsets.
"""

from __future__ import annotations

from anabranch.core.diskless.layout import (
    HEADER_MOST,
    DamagedObject,
    Entry,
    Header,
    check_body,
    decode_header,
    decode_index,
)
from anabranch.core.diskless.rows import Batch
from anabranch.core.errors import ProtocolError
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import crc_is_valid, walk


def parse_object(held: Buffer, place: str) -> tuple[Header, list[Batch]]:
    """Who wrote a whole object, and its batches by partition. Raises DamagedObject."""
    header = decode_header(memoryview(held)[:HEADER_MOST], place)
    tail = decode_index(held, len(held), place)
    if tail.object_id != header.object_id:
        raise DamagedObject(place, tail.index_offset, "header and footer name different objects")
    check_body(held, tail, place)
    return header, [batch for entry in tail.entries for batch in _batches(held, entry, place)]


def _batches(held: Buffer, entry: Entry, place: str) -> list[Batch]:
    end = entry.byte_offset + entry.byte_size
    part = memoryview(held)[:end]
    batches = []
    try:
        for position, header in walk(part, entry.byte_offset):
            if header.magic != 2 or not crc_is_valid(held, position, header.size_bytes):
                raise DamagedObject(place, position, "this is no whole record batch")
            batches.append(
                Batch(
                    entry.key,
                    position,
                    header.size_bytes,
                    header.record_count,
                    header.max_timestamp,
                    int(header.log_append_time),
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                )
            )
    except ProtocolError as problem:
        raise DamagedObject(place, problem.offset, problem.detail) from None
    if sum(batch.byte_size for batch in batches) != entry.byte_size:
        raise DamagedObject(place, entry.byte_offset, "its batches do not fill what the index says")
    return batches
