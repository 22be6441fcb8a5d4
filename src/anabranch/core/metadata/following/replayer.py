"""What bytes of the metadata log say: the one place where a copy decodes and replays.

What: `BatchReader` is the seam at which a simulation shares the results among its nodes, as all of
them read the same bytes. Rule kept: the functions are pure; sharing them changes nothing but time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

from anabranch.core.metadata.batches import MetadataBatch, understood
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import from_snapshot
from anabranch.core.types import Buffer


class BatchReader(Protocol):
    """Decodes batches and snapshots and applies them to images."""

    def batches(self, buffer: Buffer) -> Sequence[MetadataBatch]:
        """The whole batches in a buffer. Raises TooOld for what this version does not know."""

    def replay(
        self, image: MetadataImage, batches: Sequence[MetadataBatch], payload: Buffer
    ) -> tuple[MetadataImage, MetadataDelta]:
        """The image after these batches, whose bytes are `payload`, and what they touched."""

    def image_of(self, payload: bytes, end_offset: int, epoch: int) -> MetadataImage:
        """The image that a snapshot's bytes make."""


class PlainBatchReader:
    """Reads everything anew."""

    def batches(self, buffer: Buffer) -> Sequence[MetadataBatch]:
        return understood(buffer)

    def replay(
        self, image: MetadataImage, batches: Sequence[MetadataBatch], payload: Buffer
    ) -> tuple[MetadataImage, MetadataDelta]:
        records = chain.from_iterable(batch.records for batch in batches)
        last = batches[-1].header
        return replay_batch(image, records, last.last_offset, last.leader_epoch)

    def image_of(self, payload: bytes, end_offset: int, epoch: int) -> MetadataImage:
        records = chain.from_iterable(batch.records for batch in understood(payload))
        return from_snapshot(records, end_offset, epoch)


PLAIN = PlainBatchReader()
