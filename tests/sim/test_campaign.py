"""A short campaign, and what every schedule must be: repeatable, hard enough, shrinkable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace

from click.testing import CliRunner

from anabranch.cli.main import main
from anabranch.sim.campaign import Campaign, Tally, run_block
from anabranch.sim.diskless_plan import FAULTS as DISKLESS_FAULTS
from anabranch.sim.diskless_plan import MORE_FAULTS
from anabranch.sim.life import draw_plan
from anabranch.sim.plan import FAULTS
from anabranch.sim.remote_plan import FAULTS as REMOTE_FAULTS
from anabranch.sim.schedule import run_plan, run_schedule
from anabranch.sim.shrink import shrink
from anabranch.sim.transaction_compaction import FOLLOWER_AWAY
from anabranch.sim.transaction_plan import OWN_FAULTS as TRANSACTION_FAULTS

SECONDS = float(os.environ.get("ANABRANCH_SIM_TEST_SECONDS", "10"))
"""How long the campaign of the test suite goes on; always over the same first seeds."""
DISKLESS_WITH_RETENTION = 124
"""A seed in which brokers expire records of several diskless partitions."""


def test_a_short_campaign_is_clean(tmp_path):
    lines: list[str] = []
    campaign = Campaign(first=0, processes=1, block=5, state=tmp_path / "campaign.json")
    report = campaign.run(SECONDS, echo=lines.append)
    assert report.ok, "\n".join(lines)
    assert report.tally.clean > report.tally.uncounted
    assert any("schedules a minute" in line for line in lines)
    assert report.tally.mirrors > 0


def test_a_schedule_of_mirrors_is_replayed():
    shown = CliRunner().invoke(main, ["sim", "--mirror", "--seed", "1"])
    assert shown.exit_code == 0 and shown.output.splitlines()[-1].endswith(": clean")
    assert CliRunner().invoke(main, ["sim", "--mirror"]).exit_code == 2


def test_a_failing_seed_is_named_before_it_is_explained(tmp_path, monkeypatch):
    lines: list[str] = []
    failure = replace(run_schedule(7), violation="L1", sentence="A sentence.")

    def submitted(*_):
        ready: Future[Tally] = Future()
        ready.set_result(Tally(failures=[failure]))
        return ready

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submitted)
    monkeypatch.setattr("anabranch.sim.campaign.explained", lambda failure: ["explained"])
    campaign = Campaign(first=0, processes=1, block=5, state=tmp_path / "campaign.json")
    campaign.run(0.01, echo=lines.append)
    assert lines.index("seed 7: L1: A sentence.") < lines.index("explained")


def test_a_seed_gives_the_same_bytes_whatever_python_hashes():
    program = (
        "from anabranch.sim.fingerprint import fingerprint\n"
        f"print([fingerprint(seed) for seed in (3, 4, {DISKLESS_WITH_RETENTION})])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    }
    assert len(printed) == 1


def test_keeping_the_trace_changes_nothing():
    silent, told = run_schedule(7), run_schedule(7, keeps_trace=True)
    assert told.digest == silent.digest
    assert told.lines
    assert not silent.lines


def test_the_world_on_the_wire_is_as_clean():
    """Once with every message encoded and decoded for real."""
    seed = next(seed for seed in range(100) if draw_plan(seed).wire)
    outcome = run_schedule(seed)
    assert outcome.ok, outcome.sentence


def test_plans_differ_and_cover_every_fault():
    plans = [draw_plan(seed) for seed in range(300)]
    assert len({plan.faults for plan in plans}) == len(plans)
    drawn = {fault.kind for plan in plans for fault in plan.faults}
    drawn |= {fault.kind for seed in range(300, 700, 8) for fault in draw_plan(seed).faults}
    families = (*FAULTS.values(), DISKLESS_FAULTS, MORE_FAULTS, TRANSACTION_FAULTS, REMOTE_FAULTS)
    assert drawn == {FOLLOWER_AWAY, *(kind for family in families for kind in family)}
    assert all(len(plan.faults) >= 5 for plan in plans)
    assert min(plan.brokers for plan in plans) >= 3


def test_leaving_a_fault_out_leaves_the_rest_as_it_was():
    plan = draw_plan(11)
    less = replace(plan, faults=plan.faults[1:])
    assert run_plan(less).operations > 0
    assert less.operations == plan.operations


def test_shrinking_finds_the_one_fault_that_matters():
    plan = draw_plan(1)
    culprit = plan.faults[3]

    def attempt(each):
        return "boom" if culprit in each.faults else ""

    found = shrink(plan, "boom", attempt)
    assert found.plan.faults == (culprit,)
    assert not found.plan.operations
    assert not found.plan.clients
    assert found.plan.brokers == 3


def test_shrinking_stops_after_so_many_runs():
    calls = []

    def attempt(plan):
        calls.append(plan)
        return ""

    plan = draw_plan(1)
    assert shrink(plan, "boom", attempt, most_runs=7).plan == plan
    assert len(calls) == 7


def test_the_count_goes_on_from_the_last_seed(tmp_path):
    state = tmp_path / "campaign.json"
    first = Campaign(first=50, processes=1, state=state).run(0.2, echo=print)
    assert 0 < first.tally.schedules <= 8, "a campaign ends soon after its time"
    second = Campaign(processes=1, state=state)
    assert second.first == first.next_seed
    assert second.clean_before == first.tally.clean
    kept = json.loads(state.read_text())
    kept["code"] = "another"
    state.write_text(json.dumps(kept))
    third = Campaign(processes=1, state=state)
    assert third.first == first.next_seed
    assert third.clean_before == 0


def test_tallies_add_up():
    both = Tally()
    both.add(run_block(20, 1))
    both.add(run_block(21, 1))
    assert both.schedules == 2
    assert both.operations > 200
    assert (both.mirrors, both.migrations) == (1, 1), "their seeds depend on the block"


def test_the_verb_prints_a_trace_and_a_verdict():
    result = CliRunner().invoke(main, ["sim", "--seed", "7"])
    assert result.exit_code == 0, result.output
    assert "heal" in result.output
    assert "seed 7: clean" in result.output


def test_the_verb_prints_json():
    result = CliRunner().invoke(main, ["sim", "--seed", "7", "--verdict", "--json"])
    document = json.loads(result.output)
    assert document["ok"]
    assert document["seed"] == 7
    assert "lines" not in document
