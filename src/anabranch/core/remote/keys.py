"""Names of a remote segment's objects: a folder for each try, and Kafka's file names in it.

    {cluster id}/remote/{spread}/{topic id}-{partition}/{segment id}/{file}

What: ids are hexadecimal; `spread` is two digits of a checksum of the segment's id, so that
neighbours lie apart, as stores that split by name want. The files are named as on a broker's disk,
so that Kafka's tools read a folder as it is: after the first offset, but the snapshot of producers,
which is that of the segment's end, after the end. The sidecar is put last and deleted first: a
folder that has one is whole. Not here: what is in them.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from anabranch.core.diskless.rows import LogKey
from anabranch.core.log.checkpoints import LEADER_EPOCHS
from anabranch.core.log.segment import LOG, OFFSETS, SNAPSHOT, TIMES, TRANSACTIONS, offset_name
from anabranch.core.remote.segments import RemoteSegment, SegmentId
from anabranch.core.types import TopicId

ROOM = "remote"
SIDECAR = "segment.json"
_ID_DIGITS = 32


def remote_prefix(cluster_id: str) -> str:
    """What the names of all remote segments of a cluster begin with."""
    return f"{cluster_id}/{ROOM}/"


def segment_folder(cluster_id: str, key: LogKey, segment_id: SegmentId) -> str:
    """What the names of a try's objects begin with."""
    spread = crc32(segment_id) & 0xFF
    partition = f"{key.topic_id.hex()}-{key.partition}"
    return f"{remote_prefix(cluster_id)}{spread:02x}/{partition}/{segment_id.hex()}/"


def file_names(segment: RemoteSegment, *, has_aborted: bool) -> list[str]:
    """The files of a segment that are copied, the batches first."""
    suffixes = [LOG, OFFSETS, TIMES, *([TRANSACTIONS] if has_aborted else [])]
    names = [offset_name(segment.start_offset, suffix) for suffix in suffixes]
    return [*names, offset_name(segment.end_offset, SNAPSHOT), LEADER_EPOCHS]


def upload_names(segment: RemoteSegment) -> list[str]:
    """The objects of a try, in the order in which they are put: the sidecar says that all others
    are there."""
    return [*file_names(segment, has_aborted=segment.has_aborted), SIDECAR]


def object_keys(cluster_id: str, segment: RemoteSegment) -> list[str]:
    """All objects that a try may have made, in the order in which they are deleted."""
    folder = segment_folder(cluster_id, segment.key, segment.segment_id)
    names = file_names(segment, has_aborted=True)
    return [folder + SIDECAR, *(folder + name for name in names)]


class Place(NamedTuple):
    """Whose an object is, by its name."""

    key: LogKey
    segment_id: SegmentId
    name: str


def place_of(object_key: str) -> Place | None:
    """Whose an object is; None where the name is not that of a segment's object."""
    *_, partition, segment, name = ("", "", "", *object_key.split("/"))
    topic, dash, number = partition.rpartition("-")
    is_ours = bool(name) and bool(dash) and number.isascii() and number.isdigit()
    if not is_ours or len(topic) != _ID_DIGITS or len(segment) != _ID_DIGITS:
        return None
    try:
        key = LogKey(TopicId(bytes.fromhex(topic)), int(number))
        return Place(key, SegmentId(bytes.fromhex(segment)), name)
    except ValueError:
        return None
