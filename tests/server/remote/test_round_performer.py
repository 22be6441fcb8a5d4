"""Rounds on a real disk, a coordinator's file and a store in a folder."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field

import pytest
from tests.core.log.support import KEY, NOW_MS, TOPIC_ID, append, batch, read_batches

from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.objects import INCOMPLETE, ObjectsAway
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.log.config import LogConfig
from anabranch.core.log.log import Log
from anabranch.core.remote import rounds
from anabranch.core.remote.copy_pace import CopyPace
from anabranch.core.remote.facts import Facts
from anabranch.core.remote.keys import SIDECAR, object_keys, segment_folder, upload_names
from anabranch.core.remote.leftovers import Leftovers
from anabranch.core.remote.local_log import CopyLag, Limits
from anabranch.core.remote.rounds import Leading
from anabranch.core.remote.segments import SegmentId, SegmentState
from anabranch.core.remote.unfinished import PUTS_END_MS, Removals
from anabranch.server.files import RealFiles
from anabranch.server.remote.remote_counts import RemoteCounts
from anabranch.server.remote.round_performer import (
    World,
    perform_ending_round,
    perform_follower_round,
    perform_round,
    remove_leftovers,
)
from anabranch.stores.coordinator.remote_front import RemoteFront
from anabranch.stores.coordinator.sqlite import SqliteCoordinator
from anabranch.stores.objects.engines import open_objects

CLUSTER = "kwC8bZ6oTn-4yqXqYkQ0Yw"
REMOTE = LogKey(TOPIC_ID, KEY.partition)
NO_LIMIT = Limits(-1, -1)
AS_WHOLE = Limits(-2, -2)


@dataclass
class Led:
    """A partition of which all is committed."""

    log: Log
    epoch: int = 2
    topic: str = "flights"
    limits: Limits = NO_LIMIT
    local: Limits = AS_WHOLE
    copies: bool = True
    removals: Removals = field(default_factory=Removals)
    known: list[Facts] = field(default_factory=list)
    faults: list[StorageFault] = field(default_factory=list)

    @property
    def high_watermark(self) -> int:
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        return self.log.end_offset

    def stands(self, leader_epoch: int) -> bool:
        return leader_epoch == self.epoch

    async def knows(self, facts: Facts) -> None:
        self.known.append(facts)

    def failed(self, fault: StorageFault) -> None:
        self.faults.append(fault)


@dataclass
class Clocks:
    steady: int = 0
    wall: int = NOW_MS


@pytest.fixture
def clocks():
    return Clocks()


@pytest.fixture
async def world(tmp_path, clocks):
    (tmp_path / "objects").mkdir()
    objects = await open_objects(f"file://{tmp_path}/objects")
    path = str(tmp_path / "coordinator.db")
    coordinator = await SqliteCoordinator.open(path, CLUSTER, clock=lambda: clocks.wall)
    numbers = itertools.count(1)
    yield World(
        RemoteFront(coordinator), objects, CLUSTER, 1, CopyPace(),
        lambda: next(numbers).to_bytes(16), lambda: clocks.steady, lambda: clocks.wall,
        RemoteCounts(),
    )  # fmt: skip
    await coordinator.close()
    await objects.close()


def log_of(folder: str, epochs) -> Log:
    config = LogConfig(has_remote=True, file_delete_delay_ms=0)
    log = Log.create(RealFiles(), folder, KEY, TOPIC_ID, config, now_ms=NOW_MS)
    log.noted_start_offset = 0  # as a checkpoint of its folder has it
    for tag, epoch in enumerate(epochs[:-1]):
        append(log, batch(5, tag=tag), leader_epoch=epoch)
        log.roll(NOW_MS)
    append(log, batch(2, tag=9), leader_epoch=epochs[-1])
    return log


@pytest.fixture
def led(tmp_path):
    log = log_of(f"{tmp_path}/log/{KEY}", (2, 2, 2, 2, 2))
    yield Led(log)
    log.close(clean=False)


async def one_round(world: World, led: Led):
    leading = Leading(CLUSTER, REMOTE, led.epoch, led.removals, set())
    return await perform_round(world, leading, led)


async def listed(world: World) -> list[str]:
    return [each.key async for page in world.objects.list("") for each in page]


async def facts(world: World):
    known = await world.facts.look(REMOTE)
    assert known is not None
    return known


async def test_closed_segments_are_copied_once(world, led):
    done = await one_round(world, led)
    assert (done.copied, done.lag, done.fault) == (4, CopyLag(0, 0), None)
    segments = (await facts(world)).segments
    assert [(each.start_offset, each.end_offset) for each in segments] == [
        (0, 5), (5, 10), (10, 15), (15, 20),
    ]  # fmt: skip
    assert all(each.is_finished for each in segments)
    wanted = {
        segment_folder(CLUSTER, REMOTE, each.segment_id) + name
        for each in segments
        for name in upload_names(each)
    }
    assert set(await listed(world)) == wanted
    assert (await one_round(world, led)).copied == 0
    assert done.remote_bytes == sum(each.size for each in led.log.segments[:-1])


async def test_local_segments_go_once_they_were_copied_and_the_log_still_begins_there(world, led):
    led.local = Limits(-1, 0)
    led.copies = False
    await one_round(world, led)
    assert (led.log.local_start_offset, len(led.log.segments)) == (0, 5)
    led.copies = True
    await one_round(world, led)
    assert (led.log.start_offset, led.log.local_start_offset) == (0, 20)
    assert len(read_batches_from(led.log, 20)) == 1


def read_batches_from(log: Log, offset: int) -> list[bytes]:
    log.start_offset, before = offset, log.start_offset
    try:
        return read_batches(log)
    finally:
        log.start_offset = before


@pytest.mark.parametrize("epochs", [(2, 2, 2, 2, 2), (2, 2, 1, 1, 1)])
async def test_a_follower_drops_what_segments_of_its_own_epochs_hold(world, led, tmp_path, epochs):
    """Records of another leader are not those that were copied."""
    log = log_of(f"{tmp_path}/follower/{KEY}", sorted(epochs))
    followed = Led(log, local=Limits(-1, 0))
    await perform_follower_round(world, REMOTE, 2, followed)
    assert log.local_start_offset == 0
    await one_round(world, led)
    await perform_follower_round(world, REMOTE, 2, followed)
    assert (log.local_start_offset, log.start_offset) == (20 if min(epochs) == 2 else 0, 0)
    followed.epoch = 3
    with pytest.raises(Deposed):
        await perform_follower_round(world, REMOTE, 2, followed)
    log.close(clean=False)


async def test_retention_removes_remote_segments_and_then_their_objects(world, led, clocks):
    await one_round(world, led)
    size = led.log.segments[0].size
    led.limits = Limits(-1, sum(each.size for each in led.log.segments) - size)
    await one_round(world, led)
    known = await facts(world)
    assert (known.log_start, led.log.start_offset) == (5, 5)
    assert [each.state for each in known.segments][:2] == [
        SegmentState.DELETE_SEGMENT_STARTED,
        SegmentState.COPY_SEGMENT_FINISHED,
    ]
    gone = known.segments[0]
    assert not set(object_keys(CLUSTER, gone)) & set(await listed(world))
    late = object_keys(CLUSTER, gone)
    await world.objects.put(late[1], [b"late"])
    await world.objects.put(f"{late[1]}{INCOMPLETE}0", [b"cut off"])
    clocks.steady += PUTS_END_MS
    await one_round(world, led)
    known = await facts(world)
    assert gone not in known.segments
    assert len(known.segments) == 3
    assert len(await listed(world)) == sum(len(upload_names(each)) for each in known.segments)


async def test_a_clock_that_runs_ahead_expires_nothing(world, led, clocks, monkeypatch):
    led.limits = Limits(3_600_000, -1)
    await one_round(world._replace(wall_ms=lambda: NOW_MS + 10**12), led)
    assert (led.log.start_offset, (await facts(world)).log_start) == (0, 0)
    clocks.wall += 3_600_010
    await one_round(world, led)
    assert led.log.start_offset >= 20


async def test_a_store_that_is_away_ends_copies_and_the_next_round_begins_anew(
    world, led, monkeypatch
):
    put, calls = world.objects.put, itertools.count()

    async def away(key, buffers):
        if next(calls) == 7:
            raise ObjectsAway("no answer")
        await put(key, buffers)

    monkeypatch.setattr(world.objects, "put", away)
    done = await one_round(world, led)
    assert isinstance(done.fault, ObjectsAway)
    assert 0 < done.copied < 4
    assert done.lag.segments == 4 - done.copied
    done = await one_round(world, led)
    assert done.fault is None
    states = [each.state for each in (await facts(world)).segments]
    assert sorted(states) == [*[SegmentState.COPY_SEGMENT_FINISHED] * 4, 2]


async def test_a_leader_that_was_replaced_does_nothing_more(world, led):
    await one_round(world, led)
    before = await listed(world)
    await world.facts.lead(REMOTE, "flights", 3)
    led.limits = Limits(0, 0)
    with pytest.raises(Deposed):
        await one_round(world, led)
    led.epoch = 9
    leading = Leading(CLUSTER, REMOTE, 4, Removals(), set())
    with pytest.raises(Deposed, match="in epoch 4 is over"):
        await perform_round(world, leading, led)
    assert await listed(world) == before
    assert led.log.start_offset == 0


async def test_a_segment_that_is_cut_while_it_is_copied_is_not_finished(world, led, monkeypatch):
    put_large, cut = world.objects.put_large, []

    async def cutting(key, source):
        await put_large(key, source)
        if not cut:
            cut.append(led.log.truncate_to(3))
            append(led.log, batch(5, tag=7), leader_epoch=2)
            led.log.roll(NOW_MS)

    monkeypatch.setattr(world.objects, "put_large", cutting)
    done = await one_round(world, led)
    assert "truncated while it was copied" in str(done.fault)
    assert not any(each.is_finished for each in (await facts(world)).segments)


async def test_what_no_fact_names_is_removed_after_a_while_but_for_whole_segments(
    world, led, clocks
):
    await one_round(world, led)
    kept = set(await listed(world))
    partial, whole = (
        segment_folder(CLUSTER, REMOTE, SegmentId(bytes([99, each]) * 8)) for each in (1, 2)
    )
    await world.objects.put(partial + "00000000000000000000.log", [b"late"])
    for name in ("00000000000000000000.log", SIDECAR):
        await world.objects.put(whole + name, [b"late"])
    leftovers = Leftovers()
    found = await remove_leftovers(world, leftovers)
    assert (found.gone, found.next_look_ms) == (0, PUTS_END_MS)
    clocks.steady += PUTS_END_MS
    found = await remove_leftovers(world, leftovers)
    assert (found.gone, found.whole) == (1, 1)
    left = {each for each in await listed(world) if not each.startswith(whole)}
    assert left == kept


async def test_a_remote_log_that_is_over_is_removed_and_its_log_start_recorded(world, led, clocks):
    await one_round(world, led)
    led.log.drop_local(10, NOW_MS, led.high_watermark)
    led.log.config = LogConfig(file_delete_delay_ms=0)
    led.log.forget_remote()
    leading = Leading(CLUSTER, REMOTE, led.epoch, led.removals, set())
    await perform_ending_round(world, leading, led)
    assert not await listed(world)
    assert (await facts(world)).log_start == led.log.start_offset == 10
    assert await world.facts.copied_topics() == [TOPIC_ID]
    clocks.steady += PUTS_END_MS
    await perform_ending_round(world, leading, led)
    assert (await facts(world)).segments == ()
    assert await world.facts.copied_topics() == []


async def test_a_lost_checkpoint_of_log_starts_removes_no_remote_segment(world, led, tmp_path):
    await one_round(world, led)
    led.log.drop_local(10, NOW_MS, led.high_watermark)
    led.log.close(clean=True)
    found = Log.open(
        RealFiles(), led.log.folder, KEY, TOPIC_ID, led.log.config, now_ms=NOW_MS, clean=True
    )
    led.log = found
    assert (found.start_offset, found.local_start_offset, found.start_is_assumed) == (0, 10, True)
    before = set(await listed(world))
    led.epoch += 1
    await one_round(world, led)
    assert not found.start_is_assumed
    assert set(await listed(world)) == before
    assert (await facts(world)).log_start == found.start_offset == 0

    leading = Leading(CLUSTER, REMOTE, led.epoch, led.removals, set())
    start, removed = 7, (await facts(world)).segments[:1]
    await world.facts.begin_removal(
        REMOTE, led.epoch, start, [each.segment_id for each in removed], []
    )
    found.close(clean=True)
    led.log = Log.open(
        RealFiles(), found.folder, KEY, TOPIC_ID, found.config, now_ms=NOW_MS, clean=True
    )
    await perform_round(world, leading, led)  # what was deleted stays so
    assert led.log.start_offset == start
    assert len((await facts(world)).segments) == 4


async def test_a_round_of_many_segments_holds_no_loop_up(world, led, monkeypatch):
    threads, real = [], rounds.covered

    def covered(facts, view):
        threads.append(threading.current_thread())
        return real(facts, view)

    monkeypatch.setattr(rounds, "covered", covered)
    await one_round(world, led)
    assert set(threads) == {threading.main_thread()}
    before = (await facts(world)).segments
    assert before
    monkeypatch.setattr("anabranch.server.remote.round_performer.MOST_ON_LOOP", 0)
    threads.clear()
    await one_round(world, led)
    assert threads and threading.main_thread() not in threads
    assert (await facts(world)).segments == before
