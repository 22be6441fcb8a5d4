"""Schedules in which a classic topic becomes diskless: nothing is lost, doubled or reordered."""

from __future__ import annotations

from collections import Counter

import pytest
from click.testing import CliRunner

from anabranch.cli.main import main
from anabranch.sim.migration.plan import CANCEL, DELETE, GROW, STRIKES, draw_migration
from anabranch.sim.migration.run import run_migration

SEEDS = (*range(10), 9_000_420)
"""Together they end with topics of each kind; some of them catch mutants. In the last one a paused
leader commits what its producer had given up for another id."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_is_clean(seed):
    outcome = run_migration(seed)
    assert outcome.ok, outcome.sentence


def test_plans_strike_in_each_phase_with_all_that_there_is():
    plans = [draw_migration(seed) for seed in range(300)]
    strikes = Counter(
        (each.phase, getattr(each.what, "kind", each.what))
        for plan in plans
        for each in plan.strikes
    )
    for phase in ("preparing", "sealing", "diskless"):
        assert {kind for at, kind in strikes if at == phase} >= {*STRIKES, CANCEL, DELETE, GROW}
    assert Counter(len(each.actions) for each in plans).keys() == {1, 2, 3}


def test_a_seed_is_always_the_same_schedule():
    assert run_migration(1) == run_migration(1)


def test_a_schedule_is_replayed():
    shown = CliRunner().invoke(main, ["sim", "--migration", "--seed", "1"])
    assert shown.exit_code == 0
    assert ": clean, digest" in shown.output.splitlines()[-1]
    assert CliRunner().invoke(main, ["sim", "--migration"]).exit_code == 2
