"""Schedules of mirrors: nothing is lost, doubled or skipped, whatever ends when."""

from __future__ import annotations

from collections import Counter

import pytest

from anabranch.sim.mirror.run import SHAPES, run_mirror

SEEDS = (*range(24), 57, 69)
"""Together they have every shape, both guarantees and every fault; some of them catch mutants."""
FAULTS = {
    "crash", "trouble", "sleep", "driver-crash", "slots", "election", "unclean-election",
    "retention", "compaction", "compaction-of-source", "transaction-timeout", "growth",
    "made-again", "target-made-again",
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_is_clean(seed):
    outcome = run_mirror(seed)
    assert outcome.ok, outcome.sentence


def test_the_schedules_together_contain_everything():
    outcomes = [run_mirror(seed) for seed in SEEDS]
    assert {each.shape for each in outcomes} == set(SHAPES)
    assert {each.is_exactly_once for each in outcomes} == {True, False}
    counts = sum((Counter(each.counts) for each in outcomes), Counter())
    assert set(counts) >= FAULTS
    assert min(counts["translated"], counts["checkpoints"], counts["groups moved"]) > 50


def test_a_seed_is_always_the_same_schedule():
    assert run_mirror(7) == run_mirror(7)
