"""Kafka's small text files beside the segments: pure parsing and formatting.

- `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`,
  `replication-offset-checkpoint` (high watermarks), `cleaner-offset-checkpoint` (up to where a log
  is compacted): a line with the version 0, a line with the
  number of entries, then `topic partition offset`. Kafka creates these files empty, and one without
  a byte has no entries.
- `leader-epoch-checkpoint`: the same head, then `epoch start_offset`.
- `partition.metadata`: `version: 0`, `topic_id: …`.
- `.kafka_cleanshutdown`: JSON with version and broker epoch; its presence says that the logs were
  closed.
- `meta.properties` version 1: cluster, node and directory ids.

A file that cannot be parsed raises InvalidCheckpoint, which says what is wrong; the reader decides
whether the file can be rebuilt.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise

import msgspec

from anabranch.core.types import TopicId, TopicPartition, parse_topic_id, topic_id_text

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_POINTS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
_VERSION = 0


class InvalidCheckpoint(ValueError):
    """The text is not what the file should hold."""


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """An offset checkpoint, sorted."""
    rows = [f"{key[0]} {key[1]} {offsets[key]}" for key in sorted(offsets)]
    return _format(len(offsets), rows)


def parse_offsets(encoded: bytes) -> dict[TopicPartition, int]:
    """Read an offset checkpoint.

    An empty file is Kafka's from before its first entries: ours is synced before it has its name.
    No entries promise the least: all is checked, compacted and found out anew, from the first
    segment on."""
    offsets = {}
    for row in _rows(encoded) if encoded else ():
        topic, partition, offset = _fields(row, 3)
        offsets[TopicPartition(topic, _number(partition))] = _number(offset)
    return offsets


def format_epochs(entries: list[tuple[int, int]]) -> bytes:
    """A leader-epoch checkpoint."""
    return _format(len(entries), (f"{epoch} {offset}" for epoch, offset in entries))


def parse_epochs(encoded: bytes) -> list[tuple[int, int]]:
    """Read a leader-epoch checkpoint. An empty one is refused, and one that a power cut left
    without its end, be that of a number: the batches know their epochs."""
    if not encoded.endswith(b"\n"):
        raise InvalidCheckpoint("the end is missing")
    entries = []
    for row in _rows(encoded):
        epoch, offset = _fields(row, 2)
        entries.append((_number(epoch), _number(offset)))
    if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(entries)):
        raise InvalidCheckpoint("epochs are out of order")
    return entries


def format_partition_metadata(topic_id: TopicId) -> bytes:
    """The file that ties a folder to a topic id."""
    return f"version: {_VERSION}\ntopic_id: {topic_id_text(topic_id)}\n".encode()


def parse_partition_metadata(encoded: bytes) -> TopicId:
    """The topic id that a folder belongs to."""
    fields = dict(line.split(": ", 1) for line in _text(encoded).splitlines() if ": " in line)
    if fields.get("version") != str(_VERSION) or "topic_id" not in fields:
        raise InvalidCheckpoint("version or topic_id is missing")
    try:
        return parse_topic_id(fields["topic_id"].strip())
    except Exception as problem:
        raise InvalidCheckpoint(f"topic_id: {problem}") from None


def format_clean_shutdown(broker_epoch: int) -> bytes:
    """The marker of a clean shutdown, with the epoch that the broker then had."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def parse_clean_shutdown(encoded: bytes) -> int:
    """The broker epoch of a clean shutdown, -1 when the marker does not say."""
    try:
        return int(json.loads(encoded)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1


class MetaProperties(msgspec.Struct, frozen=True, gc=False):
    """What a log folder is part of."""

    cluster_id: str
    node_id: int
    directory_id: str


def format_meta_properties(meta: MetaProperties) -> bytes:
    """`meta.properties`, version 1."""
    return (
        f"cluster.id={meta.cluster_id}\ndirectory.id={meta.directory_id}\n"
        f"node.id={meta.node_id}\nversion=1\n"
    ).encode()


def parse_meta_properties(encoded: bytes) -> MetaProperties:
    """Read `meta.properties`."""
    fields = {}
    for line in _text(encoded).splitlines():
        if line and line[0] not in "#!" and "=" in line:
            name, _, setting = line.partition("=")
            fields[name.strip()] = setting.strip()
    if fields.get("version") != "1":
        raise InvalidCheckpoint(f"version is {fields.get('version')}, not 1")
    try:
        return MetaProperties(
            fields["cluster.id"], _number(fields["node.id"]), fields.get("directory.id", "")
        )
    except KeyError as missing:
        raise InvalidCheckpoint(f"{missing.args[0]} is missing") from None


def _format(count: int, rows: Iterable[str]) -> bytes:
    return "".join(f"{row}\n" for row in (str(_VERSION), str(count), *rows)).encode()


def _rows(encoded: bytes) -> list[str]:
    lines = _text(encoded).splitlines()
    if len(lines) < 2 or _number(lines[0]) != _VERSION:
        raise InvalidCheckpoint("version or number of entries is missing")
    if _number(lines[1]) != len(lines) - 2:
        raise InvalidCheckpoint(f"{lines[1]} entries are announced, {len(lines) - 2} are there")
    return lines[2:]


def _fields(row: str, count: int) -> list[str]:
    fields = row.split()
    if len(fields) != count:
        raise InvalidCheckpoint(f"a line has {len(fields)} fields instead of {count}")
    return fields


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidCheckpoint(f"{text[:40]!r} is not a number") from None


def _text(encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        raise InvalidCheckpoint("not text") from None
