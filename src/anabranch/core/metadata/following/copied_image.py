"""The image of a node's copy of the metadata log, read without changing the copy.

Why: opening a copy recovers it, as a node does that starts; who only looks, perhaps as another
user, must leave no trace. Rule kept: nothing is written or locked. What is torn off at the end is
left out. Not here: what a node does with its copy (`copy.py`).
"""

from __future__ import annotations

from anabranch.core.log.files import Files
from anabranch.core.metadata.following.checkpoints import newest_whole
from anabranch.core.metadata.following.copy import PARTITION
from anabranch.core.metadata.following.replayer import PLAIN
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import crc_is_valid, walk

SEGMENT = ".log"


def image_in(files: Files, metadata_log_dir: str) -> MetadataImage:
    """What the copy in a node's log folder adds up to; the empty image where there is none.

    Raises OSError, ProtocolError, TooOld, Bug for what cannot be read or replayed.
    """
    folder = f"{metadata_log_dir}/{PARTITION}"
    if not files.is_dir(folder):
        return MetadataImage.empty()
    image = MetadataImage.empty()
    found = newest_whole(files, folder)
    if found is not None:
        checkpoint, payload = found
        image = PLAIN.image_of(payload, checkpoint.end_offset, checkpoint.epoch)
    for name in sorted(each for each in files.list(folder) if each.endswith(SEGMENT)):
        image = _after(image, files.read(f"{folder}/{name}"))
    return image


def _after(image: MetadataImage, segment: Buffer) -> MetadataImage:
    """The image after a segment's batches, up to the first that is not whole."""
    view = memoryview(segment)
    for position, header in walk(view):
        batch = view[position : position + header.size_bytes]
        if not crc_is_valid(batch, 0, header.size_bytes):
            return image
        if header.next_offset > image.next_offset:
            image, _ = PLAIN.replay(image, PLAIN.batches(batch), batch)
    return image
