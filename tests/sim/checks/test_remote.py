"""The checks of remote logs object to each thing that must not be."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
from tests.core.remote.remote_kit import KEY, remote

from anabranch.core.remote.keys import segment_folder, upload_names
from anabranch.core.remote.segments import SegmentState
from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.remote import RemoteChecks
from anabranch.sim.checks.truth import Truth
from anabranch.sim.checks.violation import Violation
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
        node = SimpleNamespace(broker=SimpleNamespace(partitions=["the replica"]))
        logs.key_of = lambda _: KEY
        cluster = SimpleNamespace(
            cluster_id=CLUSTER, checks=[], nodes={1: node},
            image=SimpleNamespace(topic_by_id=lambda _: topic, config=lambda *_: self.configs),
        )  # fmt: skip
        suite = SimpleNamespace(logs=logs, marks=Marks())
        self.checks = RemoteChecks(cluster, self.remotes, suite)
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
