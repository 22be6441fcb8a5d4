"""Compaction of diskless topics in the simulation: which seeds have it, schedules that stay clean,
faults of jobs, checks that object."""

from __future__ import annotations

import pytest
from tests.sim.test_tiering import Scene

from anabranch.core.log.segment import LOG
from anabranch.sim.checks.violation import Violation
from anabranch.sim.diskless_plan import (
    COMPACTED_SINCE,
    COMPACTION_FAULTS,
    EVERY,
    OF_EACH,
    TIERED_SINCE,
)
from anabranch.sim.life import draw_plan
from anabranch.sim.schedule import run_schedule

CLEAN = (3156, 3068)
DRAWN = [
    (seed, draw_plan(seed)) for seed in range(COMPACTED_SINCE, COMPACTED_SINCE + 800)
    if seed % EVERY == OF_EACH
]  # fmt: skip
COMPACTED = [(seed, plan) for seed, plan in DRAWN if plan.diskless.compaction_jobs]


def test_some_seeds_have_jobs_and_earlier_ones_have_none():
    assert len(DRAWN) // 6 < len(COMPACTED) < len(DRAWN) // 2
    assert {plan.diskless.compaction_jobs for _, plan in COMPACTED} == {1, 2}
    kinds = {fault.kind for _, plan in COMPACTED for fault in plan.faults}
    assert kinds >= set(COMPACTION_FAULTS)
    for seed in range(TIERED_SINCE, COMPACTED_SINCE, 97):
        diskless = draw_plan(seed).diskless
        assert diskless is None or not diskless.compaction_jobs


@pytest.mark.parametrize("seed", CLEAN)
def test_a_schedule_with_compaction_is_clean(seed):
    outcome = run_schedule(seed)
    assert outcome.ok, outcome.sentence
    assert outcome.marks["compaction-claimed"] and outcome.marks["compaction-swapped"]


@pytest.fixture
def scene():
    made = Scene(CLEAN[0])
    yield made
    made.run.let_go()


def test_a_driver_that_died_begins_again_and_a_task_that_died_is_made_again(scene):
    (job, *others) = scene.tiering.compactions
    for each in others:
        each.die()
    before = job.done
    undo = scene.fault("compaction-driver-dies")
    scene.go_on(5)
    assert job.done == before
    scene.fault("compaction-claim-lapses")
    undo()
    scene.go_on(10)
    assert job.done > before
    job.dies_after = 3
    scene.go_on(10)
    assert "compaction-task-died" in scene.run.cluster.remotes.met


class Swapped:
    """The check of a swap, asked once more about the partition of a compacted segment."""

    def __init__(self, scene: Scene) -> None:
        self.checks, self.truth = scene.tiering.compaction, scene.run.diskless.truth
        for key, log in sorted(self.truth.logs.items()):
            present = self.checks._present(key)
            tombs = [at for at in present if log.is_tombstone(at) and at >= log.start]
            if present and tombs:
                self.key, self.log, self.present, self.tombs = key, log, present, tombs
                return
        raise AssertionError("nothing was compacted")

    def latest(self) -> int:
        """The offset of the latest value of a key."""
        end = self.checks._tiered_end(self.key)
        return next(
            at for at in sorted(self.present)
            if not self.log.is_tombstone(at) and self.log.newest_before(at, end) == at
        )  # fmt: skip


def test_what_may_not_go_is_noticed(scene):
    at = Swapped(scene)
    checks, key, log = at.checks, at.key, at.log
    checks._check_latest(key, log, at.present)
    lost = at.latest()
    with pytest.raises(Violation, match="CP2") as found:
        checks._check_latest(key, log, {a: b for a, b in at.present.items() if a != lost})
    assert "latest record" in str(found.value)
    end = checks._tiered_end(key)
    newest = [each for each in at.tombs if log.newest_before(each, end) == each]
    for each in newest:
        others = [a for a in range(max(log.start, 0), each) if log.keys[a] == log.keys[each]]
        if others:
            without = {a: b for a, b in at.present.items() if a != each}
            with pytest.raises(Violation, match="CP2"):
                checks._check_latest(key, log, {**without, others[-1]: b""})
        with pytest.raises(Violation, match="CP3"):
            checks._check_tombstones(key, log, {each: True})
    assert newest


def test_records_of_others_and_lost_objects_are_noticed(scene):
    at = Swapped(scene)
    store = at.truth.store.objects
    name, stored = next(
        (name, held) for name, held in sorted(store.items())
        if name.endswith(LOG) and f"{at.key.topic_id.hex()}-{at.key.partition}/" in name
    )  # fmt: skip
    segment_id = bytes.fromhex(name.split("/")[-2])
    del store[name]
    with pytest.raises(Violation, match="CP1"):
        at.checks._read(at.key, segment_id)
    store[name] = stored
    (other,) = {next(iter(at.checks._contents[segment_id].written))}
    value, at.log.values[other] = at.log.values[other], b"another"
    swap = type("Swap", (), {"segment_id": segment_id, "replaced": (segment_id,)})
    with pytest.raises(Violation, match="CP1"):
        at.checks._replaced(at.key, at.log, swap)
    at.log.values[other] = value


def test_readers_may_lack_only_what_compaction_removes(scene):
    at = Swapped(scene)
    clients = scene.run.diskless.clients
    topic = scene.run.cluster.image.topic_by_id(at.key.topic_id)
    poll = type("Poll", (), {"place": type("Place", (), {"topic": topic.name})})
    high = at.log.high
    newest = next(
        each for each in range(high)
        if not at.log.is_tombstone(each) and at.log.newest_before(each, high) == each
    )  # fmt: skip
    assert not clients._may_lack(poll, at.log, range(newest, newest + 1))
    assert clients._may_lack(poll, at.log, range(at.tombs[0], at.tombs[0] + 1))
    poll.place.topic = "another"
    assert not clients._may_lack(poll, at.log, range(at.tombs[0], at.tombs[0] + 1))
