"""The records of MirrorMaker 2 and Connect, to the byte.

    offset sync  key    topic STRING | partition INT32
                 value  upstream INT64 | downstream INT64                      (no version)
    checkpoint   key    group STRING | topic STRING | partition INT32          (name on the target)
                 value  version INT16 = 0 | upstream INT64 | downstream INT64 | metadata STRING
    heartbeat    key    source STRING | target STRING
                 value  version INT16 = 0 | timestamp INT64
    position     key    ["MirrorSourceConnector",{"cluster":…,"partition":…,"topic":…}]   (JSON)
                 value  {"offset":N}           N is the last offset that was mirrored

A STRING is an int16 length and UTF-8. Connect finds a position by the raw bytes of its key, so the
order of its fields and the absence of spaces matter. Rule kept: what cannot be read is a
`ForeignRecord`, for the caller to pass over or tell. Source: KIP-382, Connect's
`OffsetStorageWriter`.
"""

from __future__ import annotations

import json
from struct import Struct, error
from typing import NamedTuple

CONNECTOR = "MirrorSourceConnector"
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_SYNC = Struct(">qq")
_CHECKPOINT = Struct(">hqq")
_HEARTBEAT = Struct(">hq")
VERSION = 0


class ForeignRecord(ValueError):
    """A record of an internal topic that has another shape than expected."""


class OffsetSync(NamedTuple):
    """One pair of offsets of a partition of the source."""

    topic: str
    partition: int
    upstream: int
    downstream: int


class Checkpoint(NamedTuple):
    """A group's offset in a partition, on both sides. `topic` is the name on the target."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""


class Heartbeat(NamedTuple):
    """A sign of life of a pair of clusters; the time is in ms since 1970."""

    source: str
    target: str
    timestamp_ms: int


class Position(NamedTuple):
    """How far a partition of the source is mirrored: the last offset, None when that is not set."""

    cluster: str
    topic: str
    partition: int
    offset: int | None


def _put(text: str) -> bytes:
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def _take(raw: bytes, at: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(raw, at)
    end = at + 2 + size
    if size < 0 or end > len(raw):
        raise ForeignRecord(f"a text of {size} bytes does not fit")
    return raw[at + 2 : end].decode(), end


def sync_record(sync: OffsetSync) -> tuple[bytes, bytes]:
    """Key and value of an offset sync."""
    key = _put(sync.topic) + _INT32.pack(sync.partition)
    return key, _SYNC.pack(sync.upstream, sync.downstream)


def read_sync(key: bytes, value: bytes) -> OffsetSync:
    """The offset sync of a record. Raises ForeignRecord."""
    try:
        topic, at = _take(key, 0)
        return OffsetSync(topic, *_INT32.unpack_from(key, at), *_SYNC.unpack_from(value, 0))
    except (error, UnicodeDecodeError) as fault:
        raise ForeignRecord(str(fault)) from None


def checkpoint_key(group: str, topic: str, partition: int) -> bytes:
    """The key of a checkpoint."""
    return _put(group) + _put(topic) + _INT32.pack(partition)


def checkpoint_record(checkpoint: Checkpoint) -> tuple[bytes, bytes]:
    """Key and value of a checkpoint."""
    group, topic, partition, upstream, downstream, metadata = checkpoint
    value = _CHECKPOINT.pack(VERSION, upstream, downstream) + _put(metadata)
    return checkpoint_key(group, topic, partition), value


def read_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    """The checkpoint of a record. Raises ForeignRecord."""
    try:
        group, at = _take(key, 0)
        topic, at = _take(key, at)
        (partition,) = _INT32.unpack_from(key, at)
        version, upstream, downstream = _CHECKPOINT.unpack_from(value, 0)
        if version != VERSION:
            raise ForeignRecord(f"a checkpoint of version {version}")
        metadata, _ = _take(value, _CHECKPOINT.size)
    except (error, UnicodeDecodeError) as fault:
        raise ForeignRecord(str(fault)) from None
    return Checkpoint(group, topic, partition, upstream, downstream, metadata)


def heartbeat_record(heartbeat: Heartbeat) -> tuple[bytes, bytes]:
    """Key and value of a heartbeat."""
    key = _put(heartbeat.source) + _put(heartbeat.target)
    return key, _HEARTBEAT.pack(VERSION, heartbeat.timestamp_ms)


def read_heartbeat(key: bytes, value: bytes) -> Heartbeat:
    """The heartbeat of a record. Raises ForeignRecord."""
    try:
        source, at = _take(key, 0)
        target, _ = _take(key, at)
        version, timestamp_ms = _HEARTBEAT.unpack_from(value, 0)
    except (error, UnicodeDecodeError) as fault:
        raise ForeignRecord(str(fault)) from None
    if version != VERSION:
        raise ForeignRecord(f"a heartbeat of version {version}")
    return Heartbeat(source, target, timestamp_ms)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def position_key(cluster: str, topic: str, partition: int) -> bytes:
    """The key under which Connect keeps the position of a partition."""
    return _json([CONNECTOR, {"cluster": cluster, "partition": partition, "topic": topic}])


def position_record(position: Position) -> tuple[bytes, bytes | None]:
    """Key and value of a position; without an offset it is deleted."""
    key = position_key(position.cluster, position.topic, position.partition)
    return key, None if position.offset is None else _json({"offset": position.offset})


def read_position(key: bytes, value: bytes | None) -> Position | None:
    """The position of a record; None for one of another connector. Raises ForeignRecord."""
    try:
        connector, place = json.loads(key)
        if connector != CONNECTOR:
            return None
        offset = None if value is None else json.loads(value)["offset"]
        found = Position(place["cluster"], place["topic"], int(place["partition"]), offset)
    except (ValueError, KeyError, TypeError) as fault:
        raise ForeignRecord(f"{type(fault).__name__}: {fault}") from None
    if not (offset is None or isinstance(offset, int)) or isinstance(offset, bool):
        raise ForeignRecord(f"the offset is {offset!r}")
    return found
