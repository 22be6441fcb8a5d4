"""Reading everything that a metadata store has committed: what a controller begins its term with.

What: the newest snapshot and the batches after it, as image, log and reasons; and before that, at
a node's start, whether the store is older than the node's own copy. Rule kept: what a
newer version of Anabranch wrote is never half understood; it raises TooOld, with the level that is
missing where that is known; and who reads stays in office and on its loop, however much there is.
Not here: who takes the lease (`controller.py`), the node's own copy (`metadata_copy.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from anabranch.core.controller.history import History
from anabranch.core.errors import StorageFault
from anabranch.core.metadata.batches import understood
from anabranch.core.metadata.committed_log import CommittedBatch, CommittedLog, SnapshotView
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import check_supported
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import from_snapshot
from anabranch.core.metadata.store import (
    Lease,
    MetadataStore,
    Snapshot,
    StoredBatch,
)
from anabranch.core.metadata.store_check import CopyEnd, store_fault

READ_BYTES = 8 * 1024 * 1024


async def read_holding(
    store: MetadataStore, lease: Lease, renew_s: float
) -> tuple[MetadataImage, CommittedLog, History]:
    """Everything committed, and why it was decided, for who has just taken the lease.

    The lease is renewed every `renew_s` seconds meanwhile: who reads for long would be taken for
    dead, and so would whoever took it next. Raises TooOld, StorageFault.
    """
    keeping = asyncio.create_task(_keep(store, lease, renew_s))
    try:
        return await _read(store)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _keep(store: MetadataStore, lease: Lease, renew_s: float) -> None:
    """Until it is cancelled, or another took the lease: what is appended next then shows it."""
    kept: Lease | None = lease
    while kept is not None:
        await asyncio.sleep(renew_s)
        kept = await store.renew_lease(kept)


async def _read(store: MetadataStore) -> tuple[MetadataImage, CommittedLog, History]:
    """In threads: this takes seconds where there are hundreds of thousands of partitions."""
    history, log = History(), CommittedLog()
    image = MetadataImage.empty()
    stored = await store.load_snapshot()
    if stored is not None:
        image, log = await asyncio.to_thread(_begin, stored, history)
    while batches := await store.read(log.end_offset, READ_BYTES):
        image = await asyncio.to_thread(_go_on, image, log, history, batches)
    return image, log, history


def _begin(stored: Snapshot, history: History) -> tuple[MetadataImage, CommittedLog]:
    records = [each for batch in understood(stored.payload) for each in batch.records]
    history.read(records)
    image = from_snapshot(records, stored.end_offset, stored.epoch)
    check_supported(image)
    log = CommittedLog(stored.end_offset, stored.epoch)
    log.take_snapshot(SnapshotView(*stored))
    return image, log


def _go_on(
    image: MetadataImage, log: CommittedLog, history: History, batches: Sequence[StoredBatch]
) -> MetadataImage:
    for batch in batches:
        log.extend(CommittedBatch(*batch))
        for decoded in understood(batch.payload):
            history.read(decoded.records)
            image, delta = replay_batch(image, decoded.records, decoded.last_offset, batch.epoch)
            if delta.features_changed:
                check_supported(image)
    return image


async def compare_with_copy(store: MetadataStore, copy: CopyEnd, url: str) -> None:
    """Raise StorageFault when the store went back behind a node's copy, or is another's."""
    if copy.end_offset == 0:
        return
    end = await store.end()
    batch = None
    if end.start_offset <= copy.last_base_offset < end.end_offset:
        found = await store.read(copy.last_base_offset, 1)
        batch = bytes(found[0].payload) if found else None
    fault = store_fault(copy, end.end_offset, batch, "(metadata.store.url)", url)
    if fault is not None:
        raise StorageFault(fault)
