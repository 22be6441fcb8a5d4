"""Diskless topics in the simulation: remotes that fail, schedules that stay clean, checks that
object."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest

from anabranch.core.diskless.coordinator import CoordinatorAway, Deposed
from anabranch.core.diskless.objects import ObjectsAway, ObjectTaken
from anabranch.core.diskless.rows import Batch, Commit, CommitState, LogKey, NewLogs
from anabranch.core.errors import ErrorCode
from anabranch.core.types import TopicId
from anabranch.core.wire.records import Record, build_batch
from anabranch.sim.checks.diskless import DisklessChecks
from anabranch.sim.checks.managed import ManagedChecks
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.model import Model, Partition
from anabranch.sim.checks.violation import Violation
from anabranch.sim.diskless import DisklessPerformer
from anabranch.sim.diskless_plan import EVERY, FIRST_SEED, OF_EACH
from anabranch.sim.life import draw_plan
from anabranch.sim.objects import HANG_US
from anabranch.sim.plan import BY_NAME
from anabranch.sim.processes import Process, State
from anabranch.sim.remote import LOST, UNANSWERED, RemoteFaults
from anabranch.sim.remotes import Remotes
from anabranch.sim.schedule import Run, run_schedule
from anabranch.sim.trace import Trace
from anabranch.sim.world import World

TOPIC = TopicId(b"t" * 16)
KEY = LogKey(TOPIC, 0)
LEASE_MS = 60_000
GRACE_MS = 5_000
CLEAN = (100, 420, 612)


class Scene:
    """A store and a coordinator that are watched, and one broker's hand-made calls."""

    def __init__(self, *, may_move: bool = True) -> None:
        self.world = World(1)
        self.remotes = Remotes(self.world, "cluster")
        self.checks = DisklessChecks(self.remotes, Marks(), GRACE_MS, lambda _topic_id: may_move)
        self.ask("take_control", 1)
        self.ask("create_logs", 1, [NewLogs(TOPIC, "t", 0, 1)])
        self.ask("register", 1, 7)

    def made(self, call: Callable[..., None], seconds: float = 5.0) -> list:
        told: list = []
        call(told.append)
        self.world.run(self.world.now_us + int(seconds * 1e6))
        return told

    def ask(self, name: str, *args):
        (result,) = self.made(partial(self.remotes.coordinator.ask, "node-1", name, args))
        return result

    def put(self, key: str, data: bytes):
        (result,) = self.made(partial(self.remotes.objects.put, "node-1", key, [data]))
        return result

    def commit(self, value: bytes = b"a", sequence: int = 0, epoch: int = 7) -> Commit:
        """An object that is stored, as it would be committed."""
        (prepared,) = self.ask("prepare", 1, 7, 1, LEASE_MS)
        data = bytes(
            build_batch(
                [Record(0, 0, None, value)], producer_id=5, producer_epoch=0, base_sequence=sequence
            )
        )
        self.put(prepared.object_key, data)
        batch = Batch(KEY, 0, len(data), 1, 0, 0, 5, 0, sequence)
        return Commit(*prepared[:2], len(data), 1, epoch, (batch,))


def test_calls_get_lost_are_done_unanswered_or_late():
    for faults, at_once, in_the_end in (
        (RemoteFaults(lost=1.0), False, False),
        (RemoteFaults(unanswered=1.0), True, True),
        (RemoteFaults(late=1.0, late_us=60_000_000), False, True),
        (RemoteFaults(away=True), False, False),
        (RemoteFaults(cut_off={"node-1"}), False, False),
    ):
        scene = Scene()
        scene.remotes.objects.faults = faults
        assert isinstance(scene.put("key", b"x"), ObjectsAway)
        assert ("key" in scene.remotes.objects.objects) is at_once
        scene.world.run(scene.world.now_us + 61_000_000)
        assert ("key" in scene.remotes.objects.objects) is in_the_end


@pytest.mark.parametrize("is_done", [True, False])
def test_a_put_that_hangs_is_answered_as_late_as_a_call_ends(is_done):
    scene = Scene()
    objects = scene.remotes.objects
    objects.hangs["node-1"] = lambda _: is_done
    assert not scene.made(partial(objects.put, "node-1", "key", [b"x"]), HANG_US / 1e6 - 1)
    scene.world.run(scene.world.now_us + 2_000_000)
    assert ("key" in objects.objects) is is_done


def test_a_put_never_replaces():
    scene = Scene()
    assert scene.put("key", b"x") is None
    assert isinstance(scene.put("key", b"y"), ObjectTaken)
    assert scene.remotes.objects.objects["key"].data == b"x"


def test_a_watch_tells_in_order_until_it_breaks():
    scene = Scene()
    coordinator = scene.remotes.coordinator
    heard, broken = [], []
    (watch,) = scene.made(
        partial(coordinator.watch, "node-1", heard.extend, lambda: broken.append(True))
    )
    for sequence in range(5):
        scene.ask("commit", scene.commit(sequence=sequence))
    assert [change.state.high_watermark for change in heard] == [1, 2, 3, 4, 5]
    coordinator.break_watches()
    assert not watch.is_open
    scene.ask("commit", scene.commit(sequence=5))
    assert broken
    assert len(heard) == 5


def test_a_coordinator_that_is_away_says_so_and_a_refusal_is_told():
    scene = Scene()
    assert isinstance(scene.ask("register", 1, 6), Deposed)
    scene.remotes.coordinator.faults.away = True
    assert isinstance(scene.ask("register", 1, 8), CoordinatorAway)


def test_the_checks_keep_what_is_committed_and_know_duplicates():
    scene = Scene()
    first = scene.commit(b"a")
    assert scene.ask("commit", first).state is CommitState.COMMITTED
    again = scene.commit(b"a")
    (verdict,) = scene.ask("commit", again).verdicts
    assert verdict.is_duplicate
    assert verdict.base_offset == 0
    scene.ask("commit", scene.commit(b"b", sequence=1))
    assert scene.checks.logs[KEY].values == [b"a", b"b"]
    assert scene.checks.orphans() == [again.object_key]


def test_calls_that_went_wrong_are_counted():
    scene = Scene()
    scene.remotes.objects.faults = RemoteFaults(unanswered=1.0)
    scene.put("key", b"x")
    scene.remotes.coordinator.faults = RemoteFaults(lost=1.0)
    scene.ask("register", 1, 8)
    assert scene.remotes.objects.met == {("put", UNANSWERED): 1}
    assert scene.remotes.coordinator.met == {("register", LOST): 1}


def test_the_last_replica_of_a_partition_does_not_go():
    checks = ManagedChecks(Model())
    one = Partition((1,), (1,), (), (), -1, 0, 0, recovering=False)
    with pytest.raises(Violation, match=r"^R1: The last replica went"):
        checks.look((TOPIC, 0), one, one._replace(replicas=(), isr=()))


def objects(id: str) -> pytest.RaisesExc:
    return pytest.raises(Violation, match=f"^{id}:")


def test_a_commit_of_what_is_not_stored_is_a_violation():
    scene = Scene()
    commit = scene.commit()
    del scene.remotes.objects.objects[commit.object_key]
    with objects("D2"):
        scene.ask("commit", commit)


@pytest.mark.parametrize("ahead_ms", [0, LEASE_MS])
def test_an_object_that_may_be_committed_is_not_deleted(ahead_ms):
    scene = Scene()
    commit = scene.commit()
    scene.remotes.coordinator.skew_ms += ahead_ms
    delete = partial(scene.remotes.objects.delete, "node-1", [commit.object_key])
    if ahead_ms:
        scene.made(delete)
        assert not scene.remotes.objects.objects
    else:
        with objects("D7"):
            scene.made(delete)


def test_an_object_in_use_is_not_deleted_nor_one_in_its_grace():
    scene = Scene()
    commit = scene.commit()
    scene.ask("commit", commit)
    delete = partial(scene.remotes.objects.delete, "node-1", [commit.object_key])
    with objects("D7"):
        scene.made(delete)
    scene.ask("delete_before", [(KEY, 1)])
    scene.remotes.coordinator.skew_ms -= GRACE_MS
    with objects("D7"):
        scene.made(delete)
    scene.remotes.coordinator.skew_ms += 2 * GRACE_MS
    scene.made(delete)
    assert not scene.checks.orphans()


def test_records_go_only_where_somebody_asked_for_it():
    scene = Scene(may_move=False)
    scene.ask("commit", scene.commit())
    with objects("D6"):
        scene.ask("delete_before", [(KEY, 1)])


def test_a_batch_out_of_order_is_refused_and_objects_have_an_order():
    scene = Scene()
    (verdict,) = scene.ask("commit", scene.commit(sequence=3)).verdicts
    assert verdict.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    older, newer = scene.commit(b"a"), scene.commit(b"b", sequence=1)
    scene.ask("commit", newer._replace(batches=()))
    with objects("D5"):
        scene.ask("commit", older)


def test_one_seed_of_eight_has_diskless_topics_and_the_others_are_as_they_were():
    having = [seed for seed in range(2 * FIRST_SEED) if draw_plan(seed).diskless is not None]
    assert having == [n for n in range(FIRST_SEED, 2 * FIRST_SEED) if n % EVERY == OF_EACH]
    kinds = {fault.kind for seed in range(4, 4_000, 8) for fault in draw_plan(seed).faults}
    assert {"objects-away", "coordinator-flaky", "writer-lingers", "crash-after-put"} <= kinds
    assert {"sleep-after-put", "objects-away-for-minutes", "puts-hang"} <= kinds


def test_where_a_diskless_topic_is_made_again_no_fault_has_clients_name_topics_by_name():
    """Else a record that was meant for the topic before would stand in the new one."""
    seeds = range(FIRST_SEED, 2_000, EVERY)
    again = mixed = 0
    for plan in map(draw_plan, seeds):
        assert plan.diskless is not None
        is_made_again = any(topic.is_made_again for topic in plan.diskless.topics)
        is_mixed = any(fault.kind == BY_NAME for fault in plan.faults)
        assert not (is_made_again and is_mixed), plan.seed
        again, mixed = again + is_made_again, mixed + is_mixed
    assert again and mixed


@pytest.mark.parametrize("seed", CLEAN)
def test_a_schedule_with_diskless_topics_is_clean(seed):
    outcome = run_schedule(seed)
    assert outcome.ok, outcome.sentence
    assert outcome.marks["diskless-orphan-collected"]


def test_the_same_seed_gives_the_same_run():
    assert run_schedule(FIRST_SEED).digest == run_schedule(FIRST_SEED).digest


@pytest.mark.parametrize("pause_ms", [0, 70])
@pytest.mark.parametrize("could_open", [True, False])
def test_a_broker_opens_its_watch_again_when_the_machine_says(pause_ms, could_open):
    world, opened = World(1), []
    process = Process("node-1")
    process.state, process.world = State.RUNNING, world
    process.begin = process.settle = lambda: None
    machine = SimpleNamespace(watch_opened=lambda: None, watch_broken=lambda: pause_ms)
    process.broker = SimpleNamespace(diskless=machine)

    def watch(_caller, _hear, broken, done):
        opened.append(world.now_us)
        if len(opened) > 1:
            return
        done(SimpleNamespace(is_open=True) if could_open else CoordinatorAway("away"))
        if could_open:
            broken()

    remotes = SimpleNamespace(coordinator=SimpleNamespace(watch=watch))
    DisklessPerformer(process, remotes)._open_watch()
    world.run(world.now_us + 1_000_000)
    first_us, again_us = opened
    assert again_us - first_us == pause_ms * 1000


def test_a_topic_exists_by_what_is_committed_and_not_by_what_nodes_still_know():
    """The only node that had followed a deletion may have lost its disk."""
    run = Run(draw_plan(CLEAN[0]), Trace(keeps=False))
    assert run.diskless is not None
    living, partitions = run.diskless.truth.living, run.suite.model.partitions
    assert not living(TOPIC)
    partitions[TOPIC, 0] = Partition((1,), (1,), (), (), 1, 0, 0, recovering=False)
    assert living(TOPIC)
    del partitions[TOPIC, 0]
    assert not living(TOPIC)
    run.let_go()
