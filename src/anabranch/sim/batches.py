"""Reading metadata batches once for a whole cluster.

What: every node of a simulated cluster decodes and replays the same committed batches. Both are
pure, so that the first result serves all. Rule kept: a result is found only by the very bytes, and
by the very image object that they are applied to. Several batches at once make the image object
that they make one by one, so that nodes share it however their answers were cut. Not here: what is
decided.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.metadata.batches import MetadataBatch, decode_batch
from anabranch.core.metadata.following.replayer import PLAIN
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import walk
from anabranch.core.wire.metadata_records import MetadataRecord


class MetadataBatches:
    """What batches say, and what images become by them."""

    def __init__(self) -> None:
        self._decoded: dict[bytes, tuple[MetadataBatch, ...]] = {}
        self._replayed: dict[
            tuple[int, bytes], tuple[MetadataImage, MetadataImage, MetadataDelta]
        ] = {}
        self._snapshots: dict[tuple[bytes, int, int], MetadataImage] = {}

    def decode(self, payload: Buffer) -> tuple[MetadataBatch, ...]:
        """The whole batches in a buffer."""
        key = bytes(payload)
        found = self._decoded.get(key)
        if found is None:
            pieces = [key[at : at + header.size_bytes] for at, header in walk(key)]
            found = self._decoded[key] = tuple(map(self._decode_one, pieces))
        return found

    def _decode_one(self, piece: bytes) -> MetadataBatch:
        found = self._decoded.get(piece)
        return decode_batch(piece) if found is None else found[0]

    def records(self, payload: Buffer) -> tuple[MetadataRecord, ...]:
        """The records of all batches in a buffer."""
        decoded = self.decode(payload)
        if len(decoded) == 1:
            return decoded[0].records
        return tuple(record for batch in decoded for record in batch.records)

    def replay(self, image: MetadataImage, payload: Buffer) -> tuple[MetadataImage, MetadataDelta]:
        """The image after the batches in a buffer, and what they touched."""
        key = (id(image), bytes(payload))
        found = self._replayed.get(key)
        if found is None:
            last = self.decode(payload)[-1].header
            after, delta = replay_batch(
                image, self.records(payload), last.last_offset, last.leader_epoch
            )
            if len(self.decode(payload)) > 1:
                after = self._one_by_one(image, key[1])
            found = self._replayed[key] = (image, after, delta)
        return found[1], found[2]

    def _one_by_one(self, image: MetadataImage, payload: bytes) -> MetadataImage:
        for position, header in walk(payload):
            image, _ = self.replay(image, payload[position : position + header.size_bytes])
        return image

    def snapshot(self, payload: bytes, end_offset: int, epoch: int) -> MetadataImage:
        """The image that a snapshot's bytes make."""
        key = (payload, end_offset, epoch)
        found = self._snapshots.get(key)
        if found is None:
            found = self._snapshots[key] = PLAIN.image_of(*key)
        return found


class SharedBatchReader:
    """See `core.metadata.following.replayer.BatchReader`: one for all copies of a cluster."""

    def __init__(self, shared: MetadataBatches) -> None:
        self._shared = shared

    def batches(self, buffer: Buffer) -> Sequence[MetadataBatch]:
        return self._shared.decode(buffer)

    def replay(
        self, image: MetadataImage, _batches: Sequence[MetadataBatch], payload: Buffer
    ) -> tuple[MetadataImage, MetadataDelta]:
        return self._shared.replay(image, payload)

    def image_of(self, payload: bytes, end_offset: int, epoch: int) -> MetadataImage:
        return self._shared.snapshot(payload, end_offset, epoch)
