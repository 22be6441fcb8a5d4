"""Snapshot files of a node's copy: their names, which are kept, and what they hold.

What: a snapshot is `<20-digit end offset>-<10-digit epoch>.checkpoint` beside the segments, as in
Kafka. Rule kept: a snapshot is read to its footer and understood before anything is done because of
it. Source: KIP-630. Not here: what their bytes are (`core/metadata/batches.py`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from anabranch.core.errors import ProtocolError
from anabranch.core.log.files import Files
from anabranch.core.metadata.batches import snapshot_is_whole
from anabranch.core.metadata.following.replayer import BatchReader
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import check_supported

NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
KEPT = 2
"""Snapshots that a node keeps: the log begins at the older one, so that a node that follows this
copy, or a person who reads it, finds the changes since then."""


class Checkpoint(NamedTuple):
    """A snapshot file of a folder."""

    end_offset: int
    epoch: int
    name: str


def checkpoint_name(end_offset: int, epoch: int) -> str:
    """The file name of a snapshot."""
    return f"{end_offset:020d}-{epoch:010d}.checkpoint"


def checkpoints(files: Files, folder: str) -> list[Checkpoint]:
    """The snapshots in a folder, the newest first."""
    found = []
    for name in files.list(folder):
        match = NAME.fullmatch(name)
        if match is not None:
            found.append(Checkpoint(int(match[1]), int(match[2]), name))
    return sorted(found, reverse=True)


def newest_whole(files: Files, folder: str) -> tuple[Checkpoint, bytes] | None:
    """The newest snapshot that is as it was written, and its bytes."""
    for each in checkpoints(files, folder):
        payload = files.read(f"{folder}/{each.name}")
        if snapshot_is_whole(payload):
            return each, payload
    return None


def image_of(reading: BatchReader, payload: bytes, end_offset: int, epoch: int) -> MetadataImage:
    """The image that a fetched snapshot makes.

    Raises ProtocolError when it is not whole, and TooOld when this version cannot follow it.
    """
    if not snapshot_is_whole(payload):
        raise ProtocolError("snapshot", 0, "", len(payload), "it does not end with its footer")
    image = reading.image_of(payload, end_offset, epoch)
    check_supported(image)
    return image
