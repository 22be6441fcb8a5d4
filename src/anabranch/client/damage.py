"""Where a partition can be read again behind a batch whose length is damaged.

Why: readers find a batch by the length of the one before it. A batch with damaged bytes is passed
over by its length; behind a damaged length only the broker's index leads on, by offset. Apache
Kafka serves what lies behind; a node of Anabranch takes such a log offline, so that another replica
leads. Rule kept: nothing is passed over unless a whole batch with a sound checksum comes behind it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from anabranch.client.fetch import Fetched, whole_batches
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.batch import crc_is_valid, read_header

DAMAGED = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR}


class Behind(NamedTuple):
    """Where reading goes on: ask for `resume_at`, and the batch that begins at `first` comes."""

    resume_at: int
    first: int


async def behind_damage(
    fetch: Callable[[int], Awaitable[Fetched]], offset: int, until: int
) -> Behind | None:
    """The first offset between `offset`, which cannot be read, and `until` for which a whole batch
    comes; None for none. `fetch` asks the leader once. Batches between several damaged ones may be
    passed over, too. Raises ApiError, ConnectionLost."""
    unreadable, step = offset, 1
    found: Behind | None = None
    while found is None:
        asked = min(unreadable + step, until - 1)
        if asked <= unreadable:
            return None
        found = await _readable(fetch, asked)
        if found is None:
            unreadable, step = asked, step * 2
    while found.resume_at - unreadable > 1:
        middle = (found.resume_at + unreadable) // 2
        nearer = await _readable(fetch, middle)
        if nearer is None:
            unreadable = middle
        else:
            found = nearer
    return found


async def _readable(fetch: Callable[[int], Awaitable[Fetched]], offset: int) -> Behind | None:
    try:
        records = (await fetch(offset)).records
    except ApiError as fault:
        if fault.code in DAMAGED:
            return None
        raise
    if not whole_batches(records)[0]:
        return None
    header = read_header(records)
    is_it = header.base_offset <= offset <= header.last_offset
    is_sound = is_it and crc_is_valid(records, 0, header.size_bytes)
    return Behind(offset, header.base_offset) if is_sound else None
