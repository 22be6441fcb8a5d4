"""Reading everything that a metadata store has committed: what a controller begins its term with.

What: the newest snapshot and the batches after it, as image, log and reasons; and before that, at
a node's start, whether the store is older than the node's own copy. Rule kept: what a
newer version of Anabranch wrote is never half understood; it raises TooOld, with the level that is
missing where that is known. Not here: the lease (`controller.py`), the node's own copy
(`metadata_copy.py`).
"""

from __future__ import annotations

from anabranch.core.controller.batches import understood
from anabranch.core.controller.committed_log import CommittedBatch, CommittedLog, SnapshotView
from anabranch.core.controller.history import History
from anabranch.core.controller.image import MetadataImage
from anabranch.core.controller.levels import check_supported
from anabranch.core.controller.metadata_store import MetadataStore, Snapshot
from anabranch.core.controller.replay import replay_batch
from anabranch.core.controller.snapshot import from_snapshot
from anabranch.core.controller.store_check import CopyEnd, store_fault
from anabranch.core.errors import StorageFault

READ_BYTES = 8 * 1024 * 1024


async def read_committed(store: MetadataStore) -> tuple[MetadataImage, CommittedLog, History]:
    """Everything committed, and why it was decided. Raises TooOld, StorageFault."""
    history, log = History(), CommittedLog()
    image = MetadataImage.empty()
    stored = await store.load_snapshot()
    if stored is not None:
        image, log = _begin(stored, history)
    while batches := await store.read(log.end_offset, READ_BYTES):
        for batch in batches:
            log.extend(CommittedBatch(*batch))
            for decoded in understood(batch.payload):
                history.read(decoded.records)
                image, delta = replay_batch(
                    image, decoded.records, decoded.last_offset, batch.epoch
                )
                if delta.features_changed:
                    check_supported(image)
    return image, log, history


def _begin(stored: Snapshot, history: History) -> tuple[MetadataImage, CommittedLog]:
    records = [each for batch in understood(stored.payload) for each in batch.records]
    history.read(records)
    image = from_snapshot(records, stored.end_offset, stored.epoch)
    check_supported(image)
    log = CommittedLog(stored.end_offset, stored.epoch)
    log.take_snapshot(SnapshotView(*stored))
    return image, log


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
