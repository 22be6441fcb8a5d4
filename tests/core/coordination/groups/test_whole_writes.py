"""A coordinator's request is in the log of offsets whole, or not at all.

A disk takes some writes and then none, for each number of writes and each request that writes many
records; or a crash, or the next leader, cuts the log anywhere behind what was there before. What the
client was told is what the next coordinator finds, and never a part.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.core.coordination.groups.group_world import GroupWorld
from tests.core.coordination.groups.test_offsets import delete_groups, delete_offsets

from anabranch.core.coordination import shard
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC, partition_of
from anabranch.core.errors import ErrorCode
from anabranch.core.log.files import DiskFull
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import decode_records

INDEXES = range(1_100)
END = 2**62
REQUESTS = ["commit", "delete offsets", "delete the group"]
TOO_MUCH = {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
EITHER = {ErrorCode.NONE, *TOO_MUCH}


class Filling:
    """A segment's file that takes so many writes; a write that it refuses leaves its half."""

    def __init__(self, file: Any, left: int) -> None:
        self.file, self.left = file, left

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, position: int, buffers: Any) -> None:
        self.left -= 1
        if self.left < 0:
            held = b"".join(bytes(each) for each in buffers)
            self.file.write(position, (held[: len(held) // 2],))
            raise DiskFull("no room")
        self.file.write(position, buffers)


def asked(world: GroupWorld, request: str) -> set[int]:
    """The codes that the client is told."""
    if request == "commit":
        return set(world.commit_codes(dict.fromkeys(INDEXES, 2), topic="wide"))
    if request == "delete offsets":
        codes = delete_offsets(world, "wide", *INDEXES)
        return set(codes) if isinstance(codes, list) else {codes}
    return set(delete_groups(world, "g"))


def found(world: GroupWorld) -> set[int]:
    return set(world.fetch(topic="wide", indexes=INDEXES).values())


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("taken", range(3))
def test_a_request_is_written_whole_or_not_at_all(request_name: str, taken: int) -> None:
    world = GroupWorld()
    world.node.topic("wide", len(INDEXES))
    assert set(world.commit_codes(dict.fromkeys(INDEXES, 1), topic="wide")) == {ErrorCode.NONE}
    index = partition_of("g", world.broker.image, world.broker.config)
    segment = world.node.replica(OFFSETS_TOPIC, index).log.active
    segment.file = Filling(segment.file, taken)
    is_taken = asked(world, request_name) == {ErrorCode.NONE}
    segment.file = segment.file.file
    after = {"commit": 2}.get(request_name, -1)
    assert found(world) == {after if is_taken else 1}
    world.restart()
    assert found(world) == {after if is_taken else 1}, "the next coordinator found a part"


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_crash_leaves_a_request_whole_or_nothing_of_it(request_name: str) -> None:
    world = GroupWorld()
    world.node.topic("wide", len(INDEXES))
    assert set(world.commit_codes(dict.fromkeys(INDEXES, 1), topic="wide")) == {ErrorCode.NONE}
    index = partition_of("g", world.broker.image, world.broker.config)
    log = world.node.replica(OFFSETS_TOPIC, index).log
    before = log.end_offset
    assert asked(world, request_name) == {ErrorCode.NONE}
    ends = [
        header.next_offset
        for _, header in walk(log.read(before, max_bytes=1 << 30, upto=END, at_least_one=True))
    ]
    after = {"commit": 2}.get(request_name, -1)
    for end in (ends[-1], *reversed(ends[:-1]), before):
        log.truncate_to(end)
        world.restart()
        assert found(world) == {after if end == ends[-1] else 1}, "a part of it is left"


def test_what_outgrows_a_segment_is_refused_whole() -> None:
    world = GroupWorld()
    world.node.topic("wide", len(INDEXES))
    index = partition_of("g", world.broker.image, world.broker.config)
    log = world.node.replica(OFFSETS_TOPIC, index).log
    log.config = replace(log.config, segment_bytes=20_000)
    codes = set(world.commit_codes(dict.fromkeys(INDEXES, 1), topic="wide"))
    assert codes == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert found(world) == {-1}
    assert set(world.commit_codes({0: 1}, topic="wide")) == {ErrorCode.NONE}
    world.restart()
    assert world.fetch(topic="wide", indexes=(0,)) == {0: 1}


@pytest.mark.parametrize("count", [100, 300, 350, 400, 500, 1_000])
def test_what_is_compressed_can_be_read_back_or_is_refused(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader bounds what a batch becomes; one that it cannot read takes all groups with it."""
    defaults = decode_records.__kwdefaults__
    assert defaults["limit_bytes"] == shard.MOST_WRITE_BYTES
    monkeypatch.setattr(shard, "MOST_WRITE_BYTES", 20_000)
    monkeypatch.setitem(defaults, "limit_bytes", 20_000)
    world = GroupWorld(offsets_topic_compression_codec="1")
    world.node.topic("wide", len(INDEXES))
    world.commit({0: 1})
    (code,) = set(world.commit_codes(dict.fromkeys(range(count), 1), topic="wide"))
    assert code in ({ErrorCode.NONE} if count < 300 else TOO_MUCH if count > 400 else EITHER)
    world.restart()
    assert world.fetch(indexes=(0,)) == {0: 1}
    assert 1 in found(world) or code in TOO_MUCH
