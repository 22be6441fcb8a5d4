"""Groups whose partition could not be read to its end take no part: what was read is not all."""

from __future__ import annotations

import asyncio

from server_kit import SECONDS
from tests.core.groups.group_world import GroupWorld

from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.groups.loader import Loader
from anabranch.server.groups import GroupShell


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
