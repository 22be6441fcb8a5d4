"""Combining manifests in a world that fails: a lost coordinator comes back as from all of them."""

from __future__ import annotations

import pytest

from anabranch.sim.checks.violation import Violation
from anabranch.sim.combination import CombiningRun


def violation_of(run: CombiningRun) -> str:
    try:
        run.run()
    except Violation as violation:
        return str(violation)
    return ""


@pytest.mark.parametrize("seed", range(4))
def test_a_restore_is_exact_whatever_fails(seed):
    run = CombiningRun(seed)
    assert violation_of(run) == ""
    assert run.checks > 40 and run.damaged and run.lost and any(run.ends)
    assert len(run.manifests()) < len(run.archive) / 2


def test_without_faults_every_round_succeeds():
    run = CombiningRun(7, faults=False)
    assert violation_of(run) == ""
    assert not any(run.ends) and run.checkpoint().root.number > 5
