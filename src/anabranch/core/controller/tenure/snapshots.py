"""When the active controller stores a snapshot of the metadata, and what is in it.

Rules kept: only what is committed is in a snapshot; one is written at a time. Source: KIP-630.
"""

from __future__ import annotations

from anabranch.core.controller.history import carrying
from anabranch.core.controller.tenure.effects import WriteSnapshot
from anabranch.core.metadata.batches import encode_snapshot
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import level_of
from anabranch.core.metadata.snapshot import snapshot_is_due, snapshot_records
from anabranch.core.metadata.store import Snapshot
from anabranch.core.settings.broker import BrokerConfig


class Snapshots:
    """The newest committed image, and how old the last snapshot is."""

    def __init__(self) -> None:
        self.committed = MetadataImage.empty()
        self._begun_ms = 0
        self._is_under_way = False

    def begin(self, image: MetadataImage, now_ms: int) -> None:
        """A term begins with this committed image."""
        self.committed, self._begun_ms = image, now_ms
        self._is_under_way = False

    def is_due(self, config: BrokerConfig, new_bytes: int, now_ms: int) -> bool:
        """Whether to write one now; it is then under way."""
        age_ms = now_ms - self._begun_ms
        if self._is_under_way or not snapshot_is_due(config, new_bytes, age_ms):
            return False
        self._begun_ms, self._is_under_way = now_ms, True
        return True

    def ended(self) -> None:
        """The one under way is stored, or cannot be."""
        self._is_under_way = False


def encoded(wanted: WriteSnapshot, wall_ms: int) -> Snapshot:
    """The snapshot that is to be stored. Takes long where there is much: decisions go on meanwhile,
    since the image is immutable."""
    image = wanted.image
    payload = encode_snapshot(
        carrying(snapshot_records(image), wanted.said),
        epoch=image.epoch,
        last_contained_ms=wall_ms,
        now_ms=wall_ms,
        level=level_of(image),
    )
    return Snapshot(image.next_offset, image.epoch, payload)
