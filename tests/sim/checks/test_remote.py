"""The checks of remote logs object to each thing that must not be."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from tests.core.remote.remote_kit import KEY, remote

from anabranch.core.remote.keys import segment_folder, upload_names
from anabranch.core.remote.segments import SegmentState
from anabranch.core.remote.unfinished import PUTS_END_MS
from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.checks.entries import entries_of
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.remote import RemoteChecks
from anabranch.sim.checks.truth import Truth
from anabranch.sim.checks.violation import Violation
from anabranch.sim.diskless_faults import MOST_LATE_US
from anabranch.sim.remote_run import RemoteRun
from anabranch.sim.remotes import Remotes
from anabranch.sim.world import World

CLUSTER = "cluster"


class Scene:
    """A store and a coordinator that are looked at, and calls of a leader in epoch 1."""

    def __init__(self) -> None:
        self.world = World(1)
        self.remotes = Remotes(self.world, CLUSTER, has_remote_logs=True)
        self.truth = Truth(KEY)
        self.truth.commit([], 10)
        model = SimpleNamespace(leaders={}, place=lambda key: str(key))
        logs = SimpleNamespace(truths={KEY: self.truth}, seats={}, model=model)
        self.configs = {"remote.storage.enable": "true"}
        topic = SimpleNamespace(name="t", partitions={KEY.partition: SimpleNamespace(leader=1)})
        self.replica = SimpleNamespace(log=SimpleNamespace(local_start_offset=2))
        node = SimpleNamespace(name="node-1", broker=SimpleNamespace(partitions=[self.replica]))
        logs.key_of = lambda _: KEY
        cluster = SimpleNamespace(
            cluster_id=CLUSTER, checks=[], nodes={1: node},
            image=SimpleNamespace(topic_by_id=lambda _: topic, config=lambda *_: self.configs),
        )  # fmt: skip
        self.leaders = model.leaders
        self.suite = SimpleNamespace(logs=logs, marks=Marks())
        self.checks = RemoteChecks(cluster, self.remotes, self.suite)
        self.ask("lead", KEY, "t", 1)
        self.segment = remote(0, 2, (0, 0), leader_epoch=1)
        self.folder = segment_folder(CLUSTER, KEY, self.segment.segment_id)

    def made(self, call) -> None:
        call(lambda _: None)
        self.world.run(self.world.now_us + 5_000_000)

    def ask(self, name: str, *args) -> None:
        self.made(partial(self.remotes.coordinator.ask, "node-1", f"remote.{name}", args))

    def put(self, name: str, data: bytes = b"x") -> None:
        self.made(partial(self.remotes.objects.put, "node-1", self.folder + name, [data]))

    def copied(self, *, without: str = "", offsets: int = 2) -> None:
        self.ask("start", self.segment)
        records = [Record(n, 0, None, b"v") for n in range(offsets)]
        for name in upload_names(self.segment):
            if name != without:
                is_log = name.endswith(".log")
                self.put(name, bytes(build_batch(records)) if is_log else b"x")
        self.ask("finish", self.segment)
        stored = self.remotes.objects.objects
        (data,) = (each.data for name, each in stored.items() if name.endswith(".log"))
        self.batches = list(entries_of(data))


def objects(rule: str) -> pytest.RaisesExc:
    return pytest.raises(Violation, match=f"^{rule}:")


def test_an_object_is_stored_where_a_fact_names_its_try():
    scene = Scene()
    with objects("RL1"):
        scene.put("segment.json")


def test_an_object_that_a_fact_names_is_not_deleted_before_its_removal_began():
    scene = Scene()
    scene.copied()
    name = scene.folder + upload_names(scene.segment)[0]
    delete = partial(scene.remotes.objects.delete, "node-1", [name])
    with objects("RL1"):
        scene.made(delete)
    scene.ask("begin_removal", KEY, 1, 2, [scene.segment.segment_id], [])
    scene.made(delete)
    assert name not in scene.remotes.objects.objects


@pytest.mark.parametrize("number", range(3))
def test_a_segment_is_not_finished_without_all_its_objects(number):
    scene = Scene()
    with objects("RL2"):
        scene.copied(without=upload_names(scene.segment)[number])


def test_a_segment_has_the_offsets_that_its_fact_says():
    scene = Scene()
    with objects("RL2"):
        scene.copied(offsets=1)


def test_a_log_start_is_not_recorded_above_what_is_committed():
    scene = Scene()
    scene.ask("begin_removal", KEY, 1, 10, [], [])
    with objects("RL4"):
        scene.ask("begin_removal", KEY, 1, 11, [], [])


def test_a_log_start_that_goes_back_is_a_violation():
    scene = Scene()
    scene.ask("begin_removal", KEY, 1, 10, [], [])
    scene.remotes.coordinator.tables.do("UPDATE remote_logs SET log_start_offset = 3")
    with objects("RL4"):
        scene.ask("begin_removal", KEY, 1, 0, [], [])


def test_what_no_log_needs_is_garbage():
    scene = Scene()
    scene.copied()
    assert not scene.checks.garbage()
    scene.checks.end()
    scene.configs["remote.storage.enable"] = "false"
    (left,) = scene.checks.garbage()[:1]
    assert left.endswith("0-2 is of a log that was switched off")
    scene.configs["remote.storage.enable"] = "true"
    scene.ask("begin_removal", KEY, 1, 2, [], [])
    (left,) = scene.checks.garbage()[:1]
    assert left.endswith("0-2 lies before the log start")
    scene.ask("begin_removal", KEY, 1, 2, [scene.segment.segment_id], [])
    first, *others = scene.checks.garbage()
    assert first.endswith(SegmentState.DELETE_SEGMENT_STARTED.name)
    assert others == sorted(scene.remotes.objects.objects)
    scene.made(partial(scene.remotes.objects.delete, "node-1", others))
    scene.ask("forget", [scene.segment.segment_id])
    assert not scene.checks.garbage()


def test_an_object_of_a_finished_segment_that_is_gone_is_a_violation():
    scene = Scene()
    scene.copied()
    scene.remotes.objects.objects.popitem()
    with objects("RL6"):
        scene.checks.end()


@pytest.mark.parametrize("is_uncleanly_led", [True, False])
def test_what_an_unclean_election_had_lost_is_asked_for_of_no_later_log(is_uncleanly_led):
    """Seed 60059: another unclean election brings a log back that had it."""
    scene = Scene()
    truth = scene.truth
    truth.led_epoch, scene.leaders[KEY, 1] = 1, 1
    if is_uncleanly_led:
        truth.reset(0, "an unclean election")
    scene.copied()
    scene.ask("begin_removal", KEY, 1, 0, [scene.segment.segment_id], [])
    truth.commit(scene.batches, 10)
    removes = partial(
        scene.ask, "begin_removal", KEY, 1, 0, [remote(2, 4, number=1).segment_id], []
    )
    if is_uncleanly_led:
        removes()
    else:
        with objects("RL5"):
            removes()


def test_what_is_committed_is_asked_for_also_after_an_unclean_election():
    scene = Scene()
    scene.truth.led_epoch, scene.leaders[KEY, 1] = 1, 1
    scene.truth.reset(0, "an unclean election")
    scene.copied()
    scene.truth.commit(scene.batches, 10)
    with objects("RL5"):
        scene.ask("begin_removal", KEY, 1, 0, [scene.segment.segment_id], [])


@pytest.mark.parametrize("late_us", [1, MOST_LATE_US // 2, MOST_LATE_US - 1])
def test_no_clock_leaps_over_the_end_of_puts_while_one_is_on_its_way(late_us):
    """Seed 30179: a removal was over, and then an object of the try came."""
    scene = Scene()
    scene.ask("start", scene.segment)
    scene.ask("begin_removal", KEY, 1, 0, [], [scene.segment.segment_id])
    world, remotes = scene.world, scene.remotes
    world.after(
        late_us, remotes.objects.put, "node-1", scene.folder + "one", [b"x"], lambda _: None
    )

    def broker() -> None:
        if remotes.ahead_ms >= PUTS_END_MS:
            left = sorted(remotes.objects.objects)
            remotes.objects.delete("node-1", left, lambda _: None)
            forget = ("node-1", "remote.forget", ([scene.segment.segment_id],), lambda _: None)
            world.after(500_000, remotes.coordinator.ask, *forget)
        else:
            world.after(500_000, broker)

    broker()
    run = SimpleNamespace(world=world, remotes=remotes, checks=scene.checks, suite=scene.suite)
    RemoteRun.collect(run)
    world.run(world.now_us + MOST_LATE_US)
    assert not scene.checks.garbage()
    assert remotes.ahead_ms
