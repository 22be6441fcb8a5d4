"""Control batches: one record whose key says what it marks, for brokers and never for consumers.

    key:    version int16 | type int16    0 abort, 1 commit, 2 leader change, 3 snapshot header,
                                          4 snapshot footer, 5 KRaft version, 6 voters
    marker: version int16 | coordinator epoch int32      (types 0 and 1, KIP-98)

The values of the Raft types are in control_records.py (KIP-595, KIP-630).
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from anabranch.core.errors import ProtocolError
from anabranch.core.types import Buffer
from anabranch.core.wire.codec import encode_bytes
from anabranch.core.wire.control_records import (
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
)
from anabranch.core.wire.records import Record, build_batch, decode_records

_KEY = Struct(">hh")
_MARKER = Struct(">hi")


class ControlType(IntEnum):
    """What a control record marks."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndMarker(NamedTuple):
    """The end of a transaction, as its coordinator wrote it."""

    committed: bool
    coordinator_epoch: int


def control_type(key: Buffer) -> int:
    """The type number in a control record's key; raises ProtocolError when it is too short."""
    try:
        return int(_KEY.unpack_from(key, 0)[1])
    except error:
        raise ProtocolError("ControlRecord", 0, "key", 0, "the key is too short") from None


def end_marker(batch: Buffer, position: int = 0) -> EndMarker | None:
    """The transaction marker in a control batch, or None when it marks something else."""
    records = decode_records(batch, position)
    if not records or records[0].key is None:
        return None
    kind = control_type(records[0].key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    try:
        epoch = _MARKER.unpack_from(records[0].value or b"", 0)[1]
    except error:
        raise ProtocolError("EndTransactionMarker", 0, "value", 0, "too short") from None
    return EndMarker(kind == ControlType.COMMIT, epoch)


def build_end_marker(
    *,
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    now_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The batch with which a transaction ends in a partition."""
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    record = Record(base_offset, now_ms, _KEY.pack(0, kind), _MARKER.pack(0, coordinator_epoch))
    return build_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def build_leader_change(
    *, base_offset: int, leader_epoch: int, leader_id: int, now_ms: int
) -> bytearray:
    """The batch with which a controller epoch begins."""
    voters = [Voter(voter_id=leader_id)]
    message = LeaderChangeMessage(leader_id=leader_id, voters=voters, granting_voters=voters)
    value = encode_bytes(message, 0)
    return _raft_batch(ControlType.LEADER_CHANGE, value, base_offset, leader_epoch, now_ms)


def build_snapshot_header(*, base_offset: int, leader_epoch: int, now_ms: int) -> bytearray:
    """The first batch of a snapshot; `now_ms` is the time of the last record that it contains."""
    value = encode_bytes(SnapshotHeaderRecord(last_contained_log_timestamp=now_ms), 0)
    return _raft_batch(ControlType.SNAPSHOT_HEADER, value, base_offset, leader_epoch, now_ms)


def build_snapshot_footer(*, base_offset: int, leader_epoch: int, now_ms: int) -> bytearray:
    """The last batch of a snapshot: a file without it was torn while it was written."""
    value = encode_bytes(SnapshotFooterRecord(), 0)
    return _raft_batch(ControlType.SNAPSHOT_FOOTER, value, base_offset, leader_epoch, now_ms)


def _raft_batch(
    kind: ControlType, value: bytes, base_offset: int, leader_epoch: int, now_ms: int
) -> bytearray:
    record = Record(base_offset, now_ms, _KEY.pack(0, kind), value)
    return build_batch([record], base_offset=base_offset, leader_epoch=leader_epoch, control=True)
