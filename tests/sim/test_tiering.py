"""Tiering in the simulation: which seeds have it, schedules that stay clean, faults of jobs, checks
that object."""

from __future__ import annotations

import pytest

from anabranch.core.remote.keys import SIDECAR
from anabranch.sim.checks.violation import Violation
from anabranch.sim.diskless_plan import EVERY, OF_EACH, TIERED_SINCE, TIERING_FAULTS
from anabranch.sim.life import draw_plan
from anabranch.sim.plan_parts import Fault
from anabranch.sim.schedule import Run, run_schedule
from anabranch.sim.trace import Trace

CLEAN = (2012, 2036, 2060)
DRAWN = [
    (seed, draw_plan(seed)) for seed in range(TIERED_SINCE, TIERED_SINCE + 800)
    if seed % EVERY == OF_EACH
]  # fmt: skip
TIERED = [(seed, plan) for seed, plan in DRAWN if plan.diskless.tiering_jobs]


def test_some_seeds_have_jobs_and_earlier_ones_have_none():
    assert len(DRAWN) // 4 < len(TIERED) < len(DRAWN)
    assert {plan.diskless.tiering_jobs for _, plan in TIERED} == {1, 2}
    kinds = {fault.kind for _, plan in TIERED for fault in plan.faults}
    assert kinds >= set(TIERING_FAULTS)
    for seed in range(0, TIERED_SINCE, 97):
        diskless = draw_plan(seed).diskless
        assert diskless is None or not diskless.tiering_jobs


@pytest.mark.parametrize("seed", CLEAN)
def test_a_schedule_with_tiering_is_clean(seed):
    outcome = run_schedule(seed)
    assert outcome.ok, outcome.sentence
    assert outcome.marks["tiering-claimed"] and outcome.marks["tiering-finished"]


def test_the_same_seed_gives_the_same_run():
    assert run_schedule(CLEAN[0]).digest == run_schedule(CLEAN[0]).digest


class Scene:
    """A schedule whose clients have written for a while, and whose jobs wait for a test."""

    def __init__(self, seed: int = CLEAN[0]) -> None:
        self.run = Run(draw_plan(seed), Trace(keeps=False))
        self.tiering = self.run.diskless.tiering
        self.job = self.tiering.jobs[0]
        self.run._settle()
        self.run.diskless.workload.start()
        self.go_on(15)

    def go_on(self, seconds: float) -> None:
        self.run.world.run(self.run.world.now_us + int(seconds * 1e6))

    def fault(self, kind: str, other: int = 0):
        return self.tiering.table()[kind](Fault(0, kind, 0, 0, other, 0.5))

    def rows(self, query: str):
        return self.run.cluster.remotes.coordinator.tables.rows(query)


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.run.let_go()


def test_a_driver_that_died_begins_again(scene):
    before = scene.job.done
    undo = scene.fault("tiering-driver-dies")
    scene.go_on(5)
    assert scene.job.done == before
    scene.fault("tiering-claim-lapses")
    undo()
    scene.go_on(10)
    assert scene.job.done > before


def test_a_task_that_dies_leaves_its_try_to_the_next_wave(scene):
    scene.fault("tiering-task-dies", 5)
    scene.go_on(20)
    assert "tiering-task-died" in scene.run.cluster.remotes.met
    assert scene.job.dies_after == 0


def test_what_is_finished_is_checked_object_by_object(scene):
    store = scene.run.cluster.remotes.objects.objects
    checks = scene.tiering.checks
    checks.end()
    finished = scene.rows("SELECT segment_id FROM remote_segments WHERE state = 1")[0][0].hex()
    key = next(each for each in store if each.endswith(f"{finished}/{SIDECAR}"))
    kept = store.pop(key)
    with pytest.raises(Violation, match="TR4"):
        checks.end()
    store[key] = kept
    checks.end()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE logs SET tiered_end_offset = 0 WHERE tiered_end_offset > 0", "above it"),
        ("UPDATE remote_segments SET state = 2 WHERE state = 1", "in no row"),
        ("UPDATE logs SET high_watermark = high_watermark + 1", "in no row"),
        (
            "INSERT INTO runs SELECT topic_id, partition, log_start_offset, log_start_offset + 1, "
            "object_id, 0, 1, 0, 0, 0 FROM logs, wal_objects "
            "WHERE tiered_end_offset > log_start_offset LIMIT 1",
            "below the tiered end",
        ),
    ],
)
def test_records_that_are_lost_or_doubled_are_noticed(scene, change, says):
    scene.tiering.checks.end()
    tables = scene.run.cluster.remotes.coordinator.tables
    tables.do(change)
    with pytest.raises(Violation, match="TR3") as found:
        scene.tiering.checks.end()
    assert says in str(found.value)


def test_what_is_left_of_tries_is_named(scene):
    checks = scene.tiering.checks
    tables = scene.run.cluster.remotes.coordinator.tables
    tables.do("UPDATE remote_segments SET state = 0 WHERE state = 1")
    left = checks.left_over()
    assert any("COPY_SEGMENT_STARTED" in each for each in left)
    assert any(each.endswith(SIDECAR) for each in left)
