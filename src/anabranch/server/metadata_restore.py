"""Putting a lost or set-back metadata store right from a node's copy.

What: `restore_store` reads copies of the metadata log (snapshot and segments) and makes the longest
one the store's whole content. A copy may be one that Apache Kafka wrote: so a folder of Kafka's is
taken over. Rule kept: a store that has something that the copy lacks, or is another cluster's, is
not touched, nor is the copy of a node that runs, nor anything while another node of the cluster
answers at an address that the copies know (`running_nodes.py`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from anabranch.core.errors import Bug, StorageFault
from anabranch.core.log.checkpoints import META_PROPERTIES
from anabranch.core.log.files import Files
from anabranch.core.metadata.following.copy import PARTITION, MetadataCopy
from anabranch.core.metadata.store import Snapshot, StoredBatch, StoreEnd
from anabranch.core.metadata.store_check import restore_fault
from anabranch.core.running_nodes import TWO_STORES, NodeAddress, addresses_of, refuse
from anabranch.server.folders import lock
from anabranch.server.running_nodes import answering
from anabranch.stores.metadata.engines import open_store


class Restored(NamedTuple):
    """What was put into the store, and from whose folder."""

    folder: str
    cluster_id: str
    end_offset: int
    batches: int
    size_bytes: int


class _Copy(NamedTuple):
    """A node's copy as its folder holds it."""

    folder: str
    cluster_id: str
    end_offset: int
    snapshot: Snapshot | None
    batches: list[StoredBatch]
    addresses: list[NodeAddress]
    """Of the cluster's nodes."""


async def restore_store(
    files: Files,
    metadata_log_dirs: Sequence[str],
    store_url: str,
    *,
    addresses: Sequence[NodeAddress] = (),
    is_sure: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Restored:
    """Make the longest of the copies in these folders the content of the store.

    Each is the log folder of a node: it holds `__cluster_metadata-0` and `meta.properties`. Nodes
    are looked for at the addresses in the copies and at `addresses`, unless it `is_sure` that all
    are stopped; `tell` is given what could not be looked at. Raises StorageFault, and FolderFault
    while a node uses one of the folders.
    """
    with contextlib.ExitStack() as held:
        copies = [_read(files, folder, held) for folder in metadata_log_dirs]
        clusters = {copy.cluster_id for copy in copies}
        if len(clusters) > 1:
            raise StorageFault(
                f"the folders belong to clusters {', '.join(sorted(clusters))}; give those of one "
                "cluster"
            )
        longest = max(copies, key=lambda copy: copy.end_offset)
        for copy in copies:
            _check_contained(copy, longest)
        if not is_sure:
            known = [each for copy in copies for each in copy.addresses]
            found = await answering([*known, *addresses], longest.cluster_id, tell)
            refuse(found, TWO_STORES)
        store = await open_store(store_url)
        try:
            await store.restore(longest.cluster_id, longest.snapshot, longest.batches)
        finally:
            await store.close()
    size_bytes = sum(len(batch.payload) for batch in longest.batches)
    size_bytes += len(longest.snapshot.payload) if longest.snapshot is not None else 0
    return Restored(
        longest.folder, longest.cluster_id, longest.end_offset, len(longest.batches), size_bytes
    )


def _read(files: Files, metadata_log_dir: str, held: contextlib.ExitStack) -> _Copy:
    """What a copy holds; its folder stays locked until `held` ends."""
    cluster_id = _cluster_id(files, metadata_log_dir)
    folder = f"{metadata_log_dir}/{PARTITION}"
    if not files.is_dir(folder):
        raise StorageFault(f"{folder} does not exist; give the log folder of a node")
    held.callback(os.close, lock(metadata_log_dir))
    try:
        copy = MetadataCopy.open(files, metadata_log_dir, time.time_ns() // 1_000_000)
    except Bug as fault:
        raise StorageFault(
            f"{folder} contains records that this version cannot replay: {fault}; nothing was "
            "changed"
        ) from None
    try:
        snapshot, batches = copy.content()
        start = snapshot.end_offset if snapshot is not None else 0
        _check_seamless(folder, start, batches)
        known = addresses_of(copy.image)
        return _Copy(metadata_log_dir, cluster_id, copy.end_offset, snapshot, batches, known)
    finally:
        copy.close()


def _check_contained(copy: _Copy, longest: _Copy) -> None:
    """Nobody but a person can say which of two histories is the right one."""
    last = copy.batches[-1] if copy.batches else None
    epoch = last.epoch if last else copy.snapshot.epoch if copy.snapshot else 0
    end = StoreEnd(0, copy.end_offset, epoch)
    fault = restore_fault(end, last, longest.snapshot, longest.batches)
    if fault is not None:
        raise StorageFault(f"{copy.folder} {fault} (the copy is that in {longest.folder})")


def _check_seamless(folder: str, start: int, batches: list[StoredBatch]) -> None:
    if batches and batches[0].first_offset > start:
        raise StorageFault(
            f"{folder} lacks offsets {start} to {batches[0].first_offset}; use another node's copy"
        )


def _cluster_id(files: Files, metadata_log_dir: str) -> str:
    path = f"{metadata_log_dir}/{META_PROPERTIES}"
    if files.exists(path):
        for line in files.read(path).decode().splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "cluster.id":
                return value.strip()
    raise StorageFault(f"{path} has no cluster.id; give the log folder of a node")
