"""What a store has committed, as image, log and reasons: what a term begins with.

What: the newest snapshot, then the batches after it, piece by piece, since a large log is read in
pieces and away from the node's loop. Rule kept: what a newer version of Anabranch wrote is never
half understood; it raises TooOld, with the level that is missing where that is known. Nor is what
a disk has spoiled.
Not here: calling the store, the node's own copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.controller.history import History
from anabranch.core.errors import CorruptStore, ProtocolError
from anabranch.core.metadata.batches import MetadataBatch, understood
from anabranch.core.metadata.committed_log import CommittedBatch, CommittedLog, SnapshotView
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import check_supported
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import from_snapshot
from anabranch.core.metadata.store import Snapshot, StoredBatch
from anabranch.core.types import Buffer


class Committed:
    """What was read so far; empty at first. Raises TooOld, CorruptStore."""

    def __init__(self) -> None:
        self.image = MetadataImage.empty()
        self.log = CommittedLog()
        self.history = History()

    def begin(self, stored: Snapshot) -> None:
        """Begin with a snapshot."""
        records = [each for batch in _understood(stored.payload) for each in batch.records]
        self.history.read(records)
        self.image = from_snapshot(records, stored.end_offset, stored.epoch)
        check_supported(self.image)
        self.log = CommittedLog(stored.end_offset, stored.epoch)
        self.log.take_snapshot(SnapshotView(*stored))

    def go_on(self, batches: Sequence[StoredBatch]) -> None:
        """The next batches."""
        for batch in batches:
            self.log.extend(CommittedBatch(*batch))
            for decoded in _understood(batch.payload):
                self.history.read(decoded.records)
                self.image, delta = replay_batch(
                    self.image, decoded.records, decoded.last_offset, batch.epoch
                )
                if delta.features_changed:
                    check_supported(self.image)


def _understood(payload: Buffer) -> list[MetadataBatch]:
    try:
        return understood(payload)
    except ProtocolError as fault:
        raise CorruptStore(
            f"the metadata store (metadata.store.url) is damaged: {fault}; stop all nodes, move "
            "the store away, and run `anabranch metadata restore` where the copy is the longest"
        ) from None
