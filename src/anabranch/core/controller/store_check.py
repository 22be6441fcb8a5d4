"""Is the metadata store the one that this node's copy was made from, and not older?

What: the comparison of a node's copy of the metadata log with the store (or with what the active
controller serves). Why: a store that was lost, or put back from a backup, would let the cluster
forget topics and hand out used ids. The copy holds committed records only, so any disagreement is
the store's fault. Rule kept: the node stops and says so; nothing is repaired without a person.
"""

from __future__ import annotations

from typing import NamedTuple

RESTORE_COMMAND = "anabranch metadata restore"


class CopyEnd(NamedTuple):
    """Where a node's copy ends: its folder, end (exclusive), last epoch, and its last batch.

    `last_batch` is b"" when the copy ends with a snapshot, or is empty.
    """

    folder: str
    end_offset: int = 0
    epoch: int = 0
    last_base_offset: int = 0
    last_batch: bytes = b""


def store_fault(
    copy: CopyEnd, end_offset: int, batch_at_copy_end: bytes | None, store: str
) -> str | None:
    """Why the store cannot be right, None when it agrees with the copy.

    `end_offset` is the store's; `batch_at_copy_end` is its batch with the copy's last offset, None
    when it keeps that in a snapshot only.
    """
    if copy.end_offset == 0:
        return None
    if end_offset == 0:
        return _sentence(copy, f"the metadata store {store} is empty, so it was lost")
    if end_offset < copy.end_offset:
        return _sentence(copy, f"the metadata store {store} went back to offset {end_offset}")
    comparable = bool(copy.last_batch) and batch_at_copy_end is not None
    if comparable and batch_at_copy_end != copy.last_batch:
        return _sentence(
            copy,
            f"the metadata store {store} went back and on differently: it has other records at "
            f"offset {copy.last_base_offset}",
        )
    return None


def _sentence(copy: CopyEnd, what: str) -> str:
    return (
        f"{what}, but this node's copy {copy.folder} ends at offset {copy.end_offset}; stop all "
        f"nodes and run `{RESTORE_COMMAND}` with the longest copy"
    )
