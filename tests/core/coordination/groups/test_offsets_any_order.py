"""R15: whatever happens in whatever order, a commit that was acknowledged is read until it is over.

Hypothesis writes a history of commits (that stay in flight, are committed, are refused, or are lost
with their coordinator), rounds of expiry, deletions of offsets, groups and topics, new topics of the
same name, and changes of the coordinator. What is read from a partition is then one of:

- the last commit that was acknowledged, or a later one whose client does not know its outcome;
- nothing, if that commit has expired by its own time, was for a topic that is no more, or was
  deleted, or if none was ever acknowledged.

So nothing of a deleted topic is ever read, and no offset goes back. Each value is committed once.
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.core.coordination.groups.group_world import GroupWorld

from anabranch.core.coordination.groups import offsets
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.delete_groups import DeleteGroupsRequest
from anabranch.core.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

HOUR_MS = 3_600_000
RETENTION_MS = 7 * 24 * HOUR_MS
GROUPS = ("g", "h")
PARTITIONS = 2
NOTHING = -1

any_group = st.sampled_from(GROUPS)
any_partition = st.integers(0, PARTITIONS - 1)


class Write(NamedTuple):
    """One commit or deletion: what it says, and the box that its answer comes into."""

    value: int
    incarnation: int
    expires_ms: int
    box: list[Any]

    @property
    def is_acknowledged(self) -> bool:
        return bool(self.box) and _code(self.box[0]) in DONE


DONE = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
"""A group that is not there has no offsets either."""


def _code(answer: Any) -> int:
    if hasattr(answer, "results"):
        return answer.results[0].error_code
    partitions = answer.topics[0].partitions if answer.topics else ()
    return partitions[0].error_code if partitions else answer.error_code


class Committing(RuleBasedStateMachine):
    """One partition of the offsets topic on two brokers, and what its clients know."""

    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld(1)
        self.world.node.change(OFFSETS_TOPIC, replicas=(1, 2), isr=(1, 2))
        self.world.follow()
        self.world.node.remove("t")
        self.incarnation, self.is_there = 0, False
        self.retentions_ms: tuple[int, ...] = (-1,)
        self.values = count(1)
        self.writes: dict[tuple[str, int], list[Write]] = {
            (group, index): [] for group in GROUPS for index in range(PARTITIONS)
        }
        self.create_topic()

    @property
    def replica(self) -> Any:
        return self.world.node.replica(OFFSETS_TOPIC)

    def note(self, group: str, index: int, value: int, expires_ms: int, answer: Any) -> None:
        box = answer if isinstance(answer, list) else [answer]
        written = Write(value, self.incarnation, expires_ms, box)
        self.writes[group, index].append(written)

    @initialize(have_retentions=st.booleans())
    def choose_clients(self, have_retentions):
        """Old clients set a retention with each commit."""
        self.retentions_ms = (-1, HOUR_MS) if have_retentions else (-1,)

    # What clients do.

    @precondition(lambda self: self.is_there)
    @rule(group=any_group, index=any_partition, is_short=st.booleans())
    def commit(self, group, index, is_short):
        value, retention_ms = next(self.values), self.retentions_ms[-1 if is_short else 0]
        how = {"version": 3, "retention_ms": retention_ms} if retention_ms >= 0 else {}
        answer = self.world.commit({index: value}, group_id=group, **how)
        lasts_ms = RETENTION_MS if retention_ms < 0 else retention_ms
        self.note(group, index, value, self.world.node.now_ms + lasts_ms, answer)

    @precondition(lambda self: self.is_there)
    @rule(group=any_group, index=any_partition)
    def delete_offset(self, group, index):
        partitions = [OffsetDeleteRequestPartition(partition_index=index)]
        topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
        answer = self.world.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
        self.note(group, index, NOTHING, 0, answer)

    @rule(group=any_group)
    def delete_group(self, group):
        answer = self.world.ask(DeleteGroupsRequest(groups_names=[group]), 2)
        for index in range(PARTITIONS):
            self.note(group, index, NOTHING, 0, answer)

    @rule()
    def read(self):
        """After this all that is in flight is committed."""
        self.set_in_sync((1, 2))
        for group in GROUPS:
            found = self.world.fetch(group, indexes=range(PARTITIONS))
            for index, value in found.items():
                allowed = self.allowed(group, index)
                assert value in allowed, (group, index, value, allowed)
            listed = self.world.fetch(group, topic=None)
            assert listed == {each: value for each, value in found.items() if value != NOTHING}

    def allowed(self, group: str, index: int) -> set[int]:
        allowed = set()
        for written in reversed(self.writes[group, index]):
            current = self.is_there and written.incarnation == self.incarnation
            over = written.expires_ms <= self.world.node.now_ms
            if written.value != NOTHING and current:
                allowed.add(written.value)
            if written.value == NOTHING or not current or over:
                allowed.add(NOTHING)
            if written.is_acknowledged:
                return allowed
        return allowed | {NOTHING}

    # What becomes of the log.

    @rule()
    def replicate(self):
        self.world.commit_to_replicas()

    @rule()
    def replicate_one_record(self):
        replica = self.replica
        replica.follower_fetched(2, min(replica.high_watermark + 1, replica.log.end_offset))
        self.world.broker.changed[replica.topic_partition] = None
        self.world.wake()

    @rule(isr=st.sampled_from([(1, 2), (1, 2), (1,)]))
    def set_in_sync(self, isr):
        """With one replica in sync, and a minimum of two, the log refuses; what is in flight
        waits on."""
        self.replica.min_insync_replicas = 2
        self.replica.take_in_sync(isr)

    @rule(is_cut=st.booleans(), recreate=st.booleans())
    def change_coordinator(self, is_cut, recreate):
        """The next one has what was committed, and perhaps what was in flight as well."""
        world, replica = self.world, self.replica
        world.node.change(OFFSETS_TOPIC, leader=2, leader_epoch=replica.leader_epoch + 1)
        world.follow()
        world.wake()
        if is_cut:
            replica.log.truncate_to(replica.high_watermark)
            replica.truncated()
        if recreate and self.is_there:
            self.delete_topic()
            self.create_topic()
        world.node.change(OFFSETS_TOPIC, leader=1, leader_epoch=replica.leader_epoch + 1)
        self.set_in_sync((1, 2))
        world.restart()

    # What time and administration do.

    @rule(hours=st.sampled_from([1, 100]))
    def let_time_pass(self, hours):
        self.world.advance(hours * HOUR_MS)

    @rule()
    def expire(self):
        offsets.expire(self.world.groups, self.world.node.now_ms)

    @precondition(lambda self: self.is_there)
    @rule()
    def delete_topic(self):
        self.world.node.remove("t")
        self.is_there = False
        offsets.topics_deleted(self.world.groups, {"t"}, self.world.node.now_ms)

    @precondition(lambda self: not self.is_there)
    @rule()
    def create_topic(self):
        self.incarnation += 1
        self.is_there = True
        self.world.node.topic("t", PARTITIONS, incarnation=self.incarnation)

    def teardown(self) -> None:
        self.read()
        self.change_coordinator(is_cut=False, recreate=False)
        self.read()


Committing.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestAnyOrder = Committing.TestCase


def step(name: str, **how: Any) -> tuple[str, dict[str, Any]]:
    return name, how


COMMIT = step("commit", group="g", index=0, is_short=False)
LOST = step("change_coordinator", is_cut=True, recreate=False)
HISTORIES = {
    "a commit is in flight while the one before expires": [
        COMMIT, step("read"), step("let_time_pass", hours=100), step("let_time_pass", hours=100),
        COMMIT, step("expire"), step("read"),
    ],
    "a commit of another partition is in flight, and the group seems to be over": [
        COMMIT, step("read"), step("let_time_pass", hours=100), step("let_time_pass", hours=100),
        step("commit", group="g", index=1, is_short=False), step("expire"), step("read"),
    ],
    "a commit is in flight while its topic is deleted": [
        COMMIT, step("delete_topic"), step("create_topic"), step("read"),
    ],
    "so it is, and its record has no room for the topic's id": [
        step("choose_clients", have_retentions=True),
        step("commit", group="g", index=0, is_short=True),
        step("delete_topic"), step("create_topic"), step("read"),
    ],
    "so it is, and nothing can be written": [
        COMMIT, step("set_in_sync", isr=(1,)), step("delete_topic"), step("create_topic"),
        step("read"), step("expire"), step("read"),
    ],
    "a topic is made anew while no broker leads": [
        COMMIT, step("read"), step("change_coordinator", is_cut=False, recreate=True),
    ],
    "so it is, of an offset with a retention of its own": [
        step("choose_clients", have_retentions=True),
        step("commit", group="g", index=0, is_short=True), step("read"),
        step("change_coordinator", is_cut=False, recreate=True),
    ],
    "the deletion of such an offset is lost with its coordinator": [
        step("choose_clients", have_retentions=True),
        step("commit", group="g", index=0, is_short=True), step("read"),
        step("delete_topic"), step("create_topic"), LOST,
    ],
    "a commit is in flight while its offset is deleted": [
        COMMIT, step("delete_offset", group="g", index=0), step("read"),
    ],
    "a commit is in flight while its group is deleted": [
        COMMIT, step("delete_group", group="g"), step("read"),
    ],
    "an offset is deleted and committed while its group is being deleted": [
        COMMIT, step("read"), step("delete_group", group="g"), COMMIT,
        step("delete_offset", group="g", index=0), step("read"),
    ],
    "a group is deleted where another deletion is not committed yet": [
        COMMIT, step("read"), step("delete_group", group="g"),
        step("change_coordinator", is_cut=False, recreate=False),
        step("delete_group", group="g"), LOST,
    ],
    "offsets are deleted of a group whose deletion is not committed yet": [
        COMMIT, step("read"), step("delete_group", group="g"),
        step("change_coordinator", is_cut=False, recreate=False),
        step("delete_offset", group="g", index=0), LOST,
    ],
    "an offset is deleted where another deletion is not committed yet": [
        COMMIT, step("commit", group="g", index=1, is_short=False), step("read"),
        step("delete_offset", group="g", index=0),
        step("change_coordinator", is_cut=False, recreate=False),
        step("delete_offset", group="g", index=0), LOST,
    ],
}  # fmt: skip


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_what_once_went_wrong(history):
    machine = Committing()
    for name, how in history:
        getattr(machine, name)(**how)
    machine.teardown()
