"""What coordinators do in slices: other steps run between them, and what ends in part is not served."""

from __future__ import annotations

import asyncio
import time

from server_kit import SECONDS
from tests.core.coordination.groups.group_world import GroupWorld

from anabranch.core.coordination.groups.loader import Loader
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.types import TopicPartition
from anabranch.server import groups
from anabranch.server.groups import SLICE_S, GroupShell


async def test_groups_that_were_read_in_part_are_not_served(monkeypatch):
    world = GroupWorld(offsets_partitions=1)
    world.commit({0: 7})
    world.groups.__init__(world.broker)
    world.groups.follow_leadership(world.node.now_ms)
    (shard,) = world.groups.to_load
    whole = Loader.steps

    def steps(loader, now_ms):
        yield from whole(loader, now_ms)
        raise StorageFault("the disk is gone")

    monkeypatch.setattr(Loader, "steps", steps)
    read = asyncio.Event()
    GroupShell(world.broker, lambda: None, read.set).load()
    async with asyncio.timeout(SECONDS):
        await read.wait()
    assert [replica for replica, _ in world.broker.faults] == [shard.replica]
    assert not shard.is_loaded and world.group() is None
    assert world.commit_codes({0: 8}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


class Assignment:
    """Work of another kind, as one that computes an assignment for many members."""

    skipped_records, place = 0, TopicPartition("__consumer_offsets", 0)

    def __init__(self, world, slices):
        self.world, self.left, self.done, self.between = world, slices, [], []

    def sliced(self):
        return self

    def steps(self, _now_ms):
        while self.left:
            self.left -= 1
            self.done.append(len(self.between))
            until = time.perf_counter() + SLICE_S
            while time.perf_counter() < until:
                pass
            yield None

    def end(self, _now_ms):
        self.world.broker.mailbox.to_load.remove(self)
        return not self.left


async def test_an_assignment_is_computed_in_slices_with_other_work_between():
    world = GroupWorld(offsets_partitions=1)
    assignment = Assignment(world, 4)
    world.broker.mailbox.to_load.append(assignment)
    settled = asyncio.Event()
    shell = GroupShell(world.broker, lambda: None, settled.set)
    shell.load()
    async with asyncio.timeout(SECONDS):
        while not settled.is_set():
            assignment.between.append(len(assignment.done))
            await asyncio.sleep(0)
    assert len(assignment.done) == 4 and not world.broker.mailbox.to_load
    assert assignment.done == sorted(set(assignment.done)), "something else ran between two slices"


async def test_what_waits_behind_work_that_fails_has_its_turn(monkeypatch):
    """Whatever it fails with: else it would be begun again at each step, and the others never."""
    world = GroupWorld(offsets_partitions=1)
    works = [Assignment(world, 2), Assignment(world, 2)]
    world.broker.mailbox.to_load += works
    steps, told = works[0].steps, []

    def fail(now_ms):
        yield next(steps(now_ms))
        raise RuntimeError("on purpose")

    monkeypatch.setattr(works[0], "steps", fail)
    monkeypatch.setattr(groups, "tell_unexpected", lambda fault, _doing: told.append(str(fault)))
    shell = GroupShell(world.broker, lambda: None, lambda: None)
    async with asyncio.timeout(SECONDS):
        while world.broker.mailbox.to_load:
            shell.load()
            await asyncio.sleep(0)
    assert [each.left for each in works] == [1, 0]
    assert told == ["on purpose"]


def test_work_that_waits_is_done_in_order_and_at_once_where_no_disk_is_waited_for():
    world = GroupWorld(offsets_partitions=1)
    works = [Assignment(world, 2), Assignment(world, 1)]
    world.broker.mailbox.to_load += works
    world.groups.load(world.node.now_ms)
    assert [each.left for each in works] == [0, 0] and not world.broker.mailbox.to_load
