"""Records of MirrorMaker 2 and Connect, to the byte."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.mirror.formats import (
    Checkpoint,
    ForeignRecord,
    Heartbeat,
    OffsetSync,
    Position,
    checkpoint_record,
    heartbeat_record,
    position_record,
    read_checkpoint,
    read_heartbeat,
    read_position,
    read_sync,
    sync_record,
)

NAME = st.text(max_size=20)
OFFSET = st.integers(0, 2**63 - 1)
PARTITION = st.integers(0, 2**31 - 1)


def test_bytes_are_those_of_mirrormaker_2():
    assert sync_record(OffsetSync("t", 1, 2, 3)) == (
        b"\0\1t\0\0\0\1", bytes(7) + b"\2" + bytes(7) + b"\3"
    )  # fmt: skip
    assert checkpoint_record(Checkpoint("g", "t", 1, 2, 3, "m")) == (
        b"\0\1g\0\1t\0\0\0\1", b"\0\0" + bytes(7) + b"\2" + bytes(7) + b"\3" + b"\0\1m"
    )  # fmt: skip
    assert heartbeat_record(Heartbeat("a", "b", 1)) == (b"\0\1a\0\1b", b"\0\0" + bytes(7) + b"\1")
    assert position_record(Position("east", "t", 3, 7)) == (
        b'["MirrorSourceConnector",{"cluster":"east","partition":3,"topic":"t"}]', b'{"offset":7}'
    )  # fmt: skip


@given(NAME, NAME, PARTITION, OFFSET, OFFSET)
def test_what_is_written_is_read_back(group, topic, partition, upstream, downstream):
    sync = OffsetSync(topic, partition, upstream, downstream)
    assert read_sync(*sync_record(sync)) == sync
    checkpoint = Checkpoint(group, topic, partition, upstream, downstream, group)
    assert read_checkpoint(*checkpoint_record(checkpoint)) == checkpoint
    heartbeat = Heartbeat(group, topic, upstream)
    assert read_heartbeat(*heartbeat_record(heartbeat)) == heartbeat
    for offset in (None, upstream):
        position = Position(group, topic, partition, offset)
        assert read_position(*position_record(position)) == position


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_foreign_bytes_are_refused_and_nothing_else_happens(key, value):
    for read in (read_sync, read_checkpoint, read_heartbeat, read_position):
        with contextlib.suppress(ForeignRecord):
            read(key, value)


def test_positions_of_other_connectors_are_passed_over():
    assert read_position(b'["MirrorHeartbeatConnector",{"x":1}]', b'{"offset":0}') is None
    with pytest.raises(ForeignRecord):
        read_position(b'["MirrorSourceConnector",{"topic":"t"}]', b'{"offset":0}')
