"""Is the metadata store the one that this node's copy was made from, and not older?

What: the comparison of a node's copy of the metadata log with the store (or with what the active
controller serves). Why: a store that was lost, or put back from a backup, would let the cluster
forget topics and hand out used ids. The copy holds committed records only, so any disagreement is
the store's fault. Rule kept: the node stops and says so; nothing is repaired without a person.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from anabranch.core.metadata.store import Lease, Snapshot, StoredBatch, StoreEnd

UNKNOWN_URL = "URL"
"""In the place of the store's address, for a node that does not talk to the store itself."""


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
    copy: CopyEnd,
    end_offset: int,
    batch_at_copy_end: bytes | None,
    store: str,
    store_url: str = UNKNOWN_URL,
) -> str | None:
    """Why the store cannot be right, None when it agrees with the copy.

    `end_offset` is the store's; `batch_at_copy_end` is its batch with the copy's last offset, None
    when it keeps that in a snapshot only. `store_url` goes into the command that is named.
    """
    if copy.end_offset == 0:
        return None
    if end_offset == 0:
        return _sentence(copy, store_url, f"{_the(store)} is empty, so it was lost")
    if end_offset < copy.end_offset:
        return _sentence(copy, store_url, f"{_the(store)} went back to offset {end_offset}")
    comparable = bool(copy.last_batch) and batch_at_copy_end is not None
    if comparable and batch_at_copy_end != copy.last_batch:
        return _parting_sentence(copy, store_url, store)
    return None


def snapshot_fault(
    copy: CopyEnd, end_offset: int, snapshot_end: int, snapshot_epoch: int, store: str
) -> str | None:
    """Why a snapshot that is offered in place of batches cannot be right, None when the copy may go
    on from it.

    `end_offset` is where the store's log ends. A sound store offers a snapshot only to who lacks
    something that is in it: one that ends before the copy, or in an older epoch, is of a store that
    went back.
    """
    if min(end_offset, snapshot_end) < copy.end_offset:
        return _sentence(copy, UNKNOWN_URL, f"{_the(store)} went back to offset {end_offset}")
    if copy.end_offset and snapshot_epoch < copy.epoch:
        return _parting_sentence(copy, UNKNOWN_URL, store)
    return None


def lease_fault(copy: CopyEnd, seen_epoch: int, lease: Lease | None, store_url: str) -> str:
    """Why a store is older than what was seen of it: its lease is of an older epoch."""
    what = "no lease" if lease is None else f"a lease of epoch {lease.epoch}"
    return (
        f"{_the('(metadata.store.url)')} went back: it has {what}, but this node has seen epoch "
        f"{seen_epoch}; stop all nodes and run `{restore_command(copy.folder, store_url)}` where "
        "the copy is the longest"
    )


def restore_fault(
    end: StoreEnd,
    last: StoredBatch | None,
    snapshot: Snapshot | None,
    batches: Sequence[StoredBatch],
) -> str | None:
    """Why a copy must not replace a history that ends like this, None when it holds all of that.

    `last` is the last batch of that history, None when it ends with a snapshot. A copy may be the
    longer one and lack records all the same: those that were committed after a restore without it.
    """
    covered = snapshot.end_offset if snapshot is not None else 0
    offered = batches[-1].end_offset if batches else covered
    if end.end_offset > offered:
        return (
            f"ends at offset {end.end_offset}, the copy only at {offered}: nothing was changed; "
            "restore from the node with the longest copy"
        )
    if end.end_offset <= covered:
        same = end.end_offset == 0 or snapshot is None or end.epoch <= snapshot.epoch
    else:
        there = next(each for each in batches if each.end_offset >= end.end_offset)
        ends = there.end_offset == end.end_offset and there.epoch == end.epoch
        same = ends if last is None else there == last
    if same:
        return None
    return (
        f"has other records before offset {end.end_offset} than the copy, of epoch {end.epoch}: "
        "nothing was changed; use a copy that has them, or, if this copy is right, move what has "
        "them away"
    )


def _the(store: str) -> str:
    return f"the metadata store {store}"


def _sentence(copy: CopyEnd, store_url: str, what: str) -> str:
    return (
        f"{what}, but this node's copy {copy.folder} ends at offset {copy.end_offset}; stop all "
        f"nodes and run `{restore_command(copy.folder, store_url)}` where the copy is the longest"
    )


def _parting_sentence(copy: CopyEnd, store_url: str, store: str) -> str:
    """Nobody but a person can say which of two histories is the right one."""
    return (
        f"{_the(store)} went back and on differently: it has other records at offset "
        f"{copy.last_base_offset} than this node's copy {copy.folder}, which ends at offset "
        f"{copy.end_offset}; stop all nodes. If the store is right, move the folder of this copy "
        "away: the node copies it again. If the copy is right, move the store away, run "
        f"`{restore_command(copy.folder, store_url)}` where such a copy is the longest, and move "
        "away the copies of nodes that have followed that store"
    )


def restore_command(copy_folder: str, store_url: str) -> str:
    """The command, as a shell takes it, that fills a store from the copy in `copy_folder`."""
    log_folder = copy_folder.rpartition("/")[0] or "."
    setting = shlex.quote(f"metadata.store.url={store_url}")
    return f"anabranch metadata restore --dir {shlex.quote(log_folder)} --set {setting}"
