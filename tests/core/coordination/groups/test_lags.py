"""The lag of groups: every committed offset is told, left out or unknown, and no other number."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.groups.lags import GroupLag, GroupLags, LagRound
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.types import LATEST
from anabranch.core.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

ME, OTHER, SILENT, NOBODY = 1, 2, 3, -1
TOPICS = {"t": b"t" * 16, "u": b"u" * 16}
ENDS = st.fixed_dictionaries(
    {(topic, index): st.tuples(st.sampled_from([ME, OTHER, SILENT, NOBODY]),
                               st.integers(0, 50), st.booleans())
     for topic in TOPICS for index in range(3)}
)  # fmt: skip
"""Place -> leader, log end, and whether a leader here does not know it yet."""
OFFSETS = st.dictionaries(
    st.tuples(st.sampled_from(["t", "u", "gone"]), st.integers(0, 2)),
    st.tuples(st.integers(-1, 60), st.booleans()), max_size=6,
)  # fmt: skip
"""Place -> committed offset, and whether it is of the topic that is there."""
GROUPS = st.dictionaries(st.text("gh", min_size=1), st.tuples(OFFSETS, st.booleans()), max_size=6)
"""Name -> offsets, and whether this broker still coordinates it."""


class World:
    """One broker among three, as far as a round looks at it."""

    def __init__(self, ends, groups):
        self.ends = ends
        self.image = SimpleNamespace(topic=self.topic, topic_ids_by_name=TOPICS)
        self.partitions = self
        self.broker = self
        self.groups = {name: self.group(name, *each) for name, each in groups.items()}

    def group(self, name, offsets, is_current):
        found = {}
        for (topic, index), (offset, is_same) in offsets.items():
            topic_id = TOPICS.get(topic, b"g" * 16) if is_same else b"o" * 16
            found.setdefault(topic, {})[index] = CommittedOffset(offset, topic_id=topic_id)
        shard = SimpleNamespace(is_current=is_current)
        return SimpleNamespace(group_id=name, shard=shard, offsets=found)

    def topic(self, name):
        partitions = {
            index: SimpleNamespace(leader=leader)
            for (topic, index), (leader, _, _) in self.ends.items()
            if topic == name
        }
        return SimpleNamespace(partitions=partitions) if partitions else None

    def find_leader(self, image, topic, index):
        leader, end, lags = self.ends[topic, index]
        if leader != ME:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return SimpleNamespace(high_watermark=end, high_watermark_lags=lags)

    def answer(self, request):
        """What ListOffsets of a leader says."""
        topics = []
        for topic in request.topics:
            parts = []
            for each in topic.partitions:
                assert each.timestamp == LATEST
                _, end, lags = self.ends[topic.name, each.partition_index]
                code = ErrorCode.OFFSET_NOT_AVAILABLE if lags else ErrorCode.NONE
                parts.append(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=code,
                        offset=-1 if lags else end,
                    )
                )  # fmt: skip
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=parts))
        return ListOffsetsResponse(topics=topics)

    def round(self, most, most_offsets=1_000, during=lambda: None):
        looked = LagRound(self, most_offsets=most_offsets)
        for _ in looked.walk():
            during()
        asked = looked.asks()
        for leader, request in asked:
            if leader != SILENT:
                looked.answered(self.answer(request))
        return looked.result(most), asked


def told(world, groups):
    """What a reader of the documentation expects: lags, and offsets without one."""
    lags, unknown = [], 0
    for name, (offsets, is_current) in groups.items():
        for (topic, index), (offset, is_same) in offsets.items():
            if not is_current or offset < 0 or not is_same or topic == "gone":
                continue
            leader, end, lags_behind = world.ends[topic, index]
            if leader in (SILENT, NOBODY) or lags_behind:
                unknown += 1
            else:
                lags.append(GroupLag(name, topic, index, offset, max(0, end - offset)))
    return lags, unknown


@given(ENDS, GROUPS, st.integers(0, 12))
def test_the_most_behind_are_told_and_all_others_counted(ends, groups, most):
    world = World(ends, groups)
    found, asked = world.round(most)
    lags, unknown = told(world, groups)
    ordered = sorted(lags, key=lambda each: -each.lag)
    assert found == GroupLags(tuple(sorted(ordered[:most])), max(0, len(lags) - most), unknown)
    named = [(leader, topic.name, each.partition_index) for leader, request in asked
             for topic in request.topics for each in topic.partitions]  # fmt: skip
    assert len(named) == len(set(named)), "each partition is asked for once, of one broker"
    assert all(ends[topic, index][0] == leader for leader, topic, index in named)
    committed = {(topic, index) for offsets, _ in groups.values() for (topic, index) in offsets}
    assert {each[1:] for each in named} <= committed, "nobody's partitions cost nothing"


@given(ENDS, GROUPS, st.integers(0, 5))
def test_offsets_beyond_the_limit_of_a_round_are_counted(ends, groups, most_offsets):
    world = World(ends, groups)
    found, _ = world.round(100, most_offsets)
    every = sum(len(offsets) for offsets, is_current in groups.values() if is_current)
    assert len(found.shown) + found.left_out + found.unknown <= every
    if found.left_out:
        assert len(found.shown) + found.unknown >= most_offsets
    else:
        lags, unknown = told(world, groups)
        assert (sorted(found.shown), found.unknown) == (sorted(lags), unknown)


def test_groups_may_go_while_they_are_walked():
    groups = {f"g{each}": ({("t", 0): (each, True)}, True) for each in range(200)}
    world = World({("t", 0): (ME, 300, False)}, groups)

    def forget():
        if world.groups:
            world.groups.popitem()

    found, _ = world.round(1_000, during=forget)
    assert 150 < len(found.shown) <= 200
    assert all(each.lag == 300 - each.offset for each in found.shown)


def test_many_offsets_take_many_steps():
    """So that clients have their turn between them."""
    groups = {
        f"g{each}": ({("t", 0): (0, True), ("t", 1): (0, True)}, True) for each in range(2_000)
    }
    world = World({("t", 0): (ME, 1, False), ("t", 1): (ME, 1, False)}, groups)
    looked = LagRound(world)
    assert len(list(looked.walk())) == 4
    assert len(looked.result().shown) == 4_000
