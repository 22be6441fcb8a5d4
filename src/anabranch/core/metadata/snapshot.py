"""An image as the records that make it: what a snapshot file holds.

Rule kept: replaying these records on the empty image gives the same image (but for its offset and
epoch, which the file's name says). The order is fixed, so equal images make equal snapshots.
Source: KIP-630. Not here: the records of each concern (`concerns/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from anabranch.core.metadata.concerns.table import CONCERNS
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.metadata_records import MetadataRecord


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Every concern's records, in a fixed order."""
    for concern in CONCERNS:
        yield from concern.snapshot(image)


def snapshot_is_due(config: BrokerConfig, new_bytes: int, age_ms: int) -> bool:
    """Whether to write a snapshot: enough new records, or any after enough time (0: never by time).

    `new_bytes` of records since the last one, which is `age_ms` old.
    """
    if new_bytes >= config.metadata_log_max_record_bytes_between_snapshots:
        return True
    return new_bytes > 0 and time_is_over(config, age_ms)


def time_is_over(config: BrokerConfig, age_ms: int) -> bool:
    """Whether new records, however few, are to be in a snapshot when the last one is this old."""
    return 0 < config.metadata_log_max_snapshot_interval_ms <= age_ms


def from_snapshot(batch: Iterable[MetadataRecord], end_offset: int, epoch: int) -> MetadataImage:
    """The image at `end_offset` (exclusive) that these records make."""
    image, _delta = replay_batch(MetadataImage.empty(), batch, end_offset - 1, epoch)
    return replace(image, offset=end_offset - 1, epoch=epoch)
