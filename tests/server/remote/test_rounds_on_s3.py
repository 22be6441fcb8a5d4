"""Rounds with an S3 server (moto's) behind a link that is late, deaf to answers, silent or broken."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from bench.s3_moto import s3_endpoint
from bench.slow_link import WELL, Condition, SlowLink
from tests.core.log.support import KEY, NOW_MS, append, batch
from tests.server.remote.test_round_performer import CLUSTER, REMOTE, Clocks, Led, log_of
from tests.stores.objects.conftest import s3_url

from anabranch.core.errors import StorageFault
from anabranch.core.remote.copy_pace import CopyPace
from anabranch.core.remote.keys import remote_prefix, segment_folder
from anabranch.core.remote.local_log import CopyLag, Limits
from anabranch.core.remote.rounds import Leading
from anabranch.core.remote.unfinished import PUTS_END_MS
from anabranch.server.remote.remote_counts import RemoteCounts
from anabranch.server.remote.round_performer import World, perform_round
from anabranch.stores.coordinator.remote_front import RemoteFront
from anabranch.stores.coordinator.sqlite import SqliteCoordinator
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.remote_verification import verify

CONDITIONS = (
    WELL, Condition(delay_ms=30), Condition(is_deaf=True), Condition(is_broken=True),
    Condition(is_silent=True), Condition(bytes_per_second=4 << 20),
)  # fmt: skip
LARGE_BATCHES = 20
"""Of a megabyte: more than what is put in one request."""
SECONDS = 60


@pytest.fixture(scope="module")
def s3():
    with s3_endpoint() as endpoint:
        yield endpoint


class Place:
    """A leader's log, its coordinator, and the store behind the link."""

    def __init__(self, world: World, led: Led, link: SlowLink, clocks: Clocks, coordinator) -> None:
        self.world, self.led, self.link, self.clocks = world, led, link, clocks
        self.coordinator = coordinator
        self.running: set = set()

    async def round(self):
        """What a round found; the fault that ended it."""
        leading = Leading(CLUSTER, REMOTE, self.led.epoch, self.led.removals, self.running)
        try:
            return await asyncio.wait_for(perform_round(self.world, leading, self.led), SECONDS)
        except StorageFault as fault:
            return fault

    @asynccontextmanager
    async def weather(self, random: Random):
        """Conditions that follow one another until the block ends; then all is well."""

        async def change() -> None:
            while True:
                self.link.become(random.choice(CONDITIONS))
                await asyncio.sleep(random.uniform(0.01, 0.25))

        task = asyncio.get_running_loop().create_task(change())
        try:
            yield
        finally:
            task.cancel()
            self.link.become(WELL)

    async def keys(self) -> list[str]:
        pages = self.world.objects.list(remote_prefix(CLUSTER))
        return [each.key async for page in pages for each in page]


@pytest.fixture
async def place(s3, tmp_path):
    link = SlowLink(int(s3.rpartition(":")[2]))
    await link.start()
    objects = await open_objects(s3_url(f"http://127.0.0.1:{link.port}"))
    clocks = Clocks()
    path = str(tmp_path / "coordinator.db")
    coordinator = await SqliteCoordinator.open(path, CLUSTER, clock=lambda: clocks.wall)
    numbers = itertools.count(1)
    world = World(
        RemoteFront(coordinator), objects, CLUSTER, 1, CopyPace(),
        lambda: next(numbers).to_bytes(16), lambda: clocks.steady, lambda: clocks.wall,
        RemoteCounts(),
    )  # fmt: skip
    log = log_of(f"{tmp_path}/log/{KEY}", (2, 2, 2, 2, 2))
    for _ in range(LARGE_BATCHES):
        append(log, batch(2, size_bytes=500_000), leader_epoch=2)
    log.roll(NOW_MS)
    append(log, batch(2), leader_epoch=2)
    yield Place(world, Led(log), link, clocks, coordinator)
    log.close(clean=False)
    await coordinator.close()
    await objects.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_every_segment_is_whole_and_no_garbage_stays(place, tmp_path, seed):
    random, faults = Random(seed), 0
    closed = sorted(Path(tmp_path / "log" / str(KEY)).glob("*.log"))[:-1]
    async with place.weather(random):
        for _ in range(12):
            done = await place.round()
            faults += isinstance(done, StorageFault) or done.fault is not None
    done = await place.round()
    assert (done.lag, done.fault) == (CopyLag(0, 0), None)
    facts = await place.world.facts.look(REMOTE)
    finished = [each for each in facts.segments if each.is_finished]
    assert [each.start_offset for each in finished] == [int(each.stem) for each in closed]
    for segment, local in zip(finished, closed, strict=True):
        folder = segment_folder(CLUSTER, segment.key, segment.segment_id)
        [held] = await place.world.objects.read(folder + local.name, [(0, segment.byte_size)])
        assert bytes(held) == local.read_bytes()
    found = await verify(place.world.objects, place.coordinator, CLUSTER, is_whole=True)
    assert not [each for each in found.findings if each.kind.is_damage]

    place.led.limits = Limits(-1, 0)
    async with place.weather(random):
        for _ in range(12):
            done = await place.round()
            faults += isinstance(done, StorageFault) or done.fault is not None
    assert not isinstance(await place.round(), StorageFault)
    place.clocks.steady += PUTS_END_MS
    done = await place.round()
    assert done.segments == 0 or (await place.round()).segments == 0
    assert await place.keys() == []
    assert faults, "the link did no harm"
