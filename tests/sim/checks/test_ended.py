"""A compacted log that says something else of a transaction than became of it is found."""

from __future__ import annotations

import pytest
from tests.sim.checks.stage import Stage
from tests.sim.checks.test_compacted import away_from, stage_with, transactional_stage, violated


def comes_back(stage: Stage) -> None:
    stage.change(isr=[1, 2])
    stage.change(isr=[1, 2, 3])


@pytest.mark.parametrize("committed", [False, True])
def test_what_is_sound_passes(committed):
    comes_back(transactional_stage(committed=committed))


def test_an_aborted_transaction_is_listed():
    stage = transactional_stage(committed=False)
    stage.log(3).aborted.clear()
    assert violated(lambda: comes_back(stage)) == "C5"


def test_a_committed_transaction_is_not_listed():
    aborted, stage = transactional_stage(committed=False), transactional_stage(committed=True)
    stage.log(3).aborted.update(aborted.log(3).aborted)
    assert violated(lambda: comes_back(stage)) == "C5"


def test_a_transaction_that_has_ended_is_not_open():
    stage = stage_with(b"x")
    away_from(stage, has_begun=False)
    stage.copy(1, 3)
    stage.log(3).producers.open_transactions[7] = 1
    assert violated(lambda: comes_back(stage)) == "C5"


def test_a_range_that_is_listed_reaches_over_one_transaction():
    stage = transactional_stage(committed=False)
    held = stage.log(3).aborted
    for base, ranges in held.items():
        held[base] = [each._replace(first_offset=0) for each in ranges]
    assert violated(lambda: comes_back(stage)) == "C5"
