"""Remote logs in the simulation: which seeds have them, schedules that stay clean, faults in the
middle of rounds."""

from __future__ import annotations

import pytest

from anabranch.sim.life import draw_plan
from anabranch.sim.plan import SEEDS_OF_PLANS
from anabranch.sim.plan_parts import Fault
from anabranch.sim.remote_faults import RemoteFaults
from anabranch.sim.remote_plan import FIRST_SEED, has_remote_logs, has_switches
from anabranch.sim.schedule import Run, run_schedule
from anabranch.sim.trace import Trace

PLAIN, OF_TRANSACTIONS = 105, 219
DRAWN = [seed for seed in range(6_000) if has_remote_logs(seed)]


def test_some_seeds_have_remote_logs_and_the_others_are_as_they_were():
    having = [seed for seed in range(3 * FIRST_SEED) if draw_plan(seed).remote is not None]
    assert having == [seed for seed in DRAWN if seed < 3 * FIRST_SEED]
    assert min(having) > FIRST_SEED
    assert draw_plan(PLAIN + SEEDS_OF_PLANS).remote == draw_plan(PLAIN).remote
    assert draw_plan(PLAIN).transactions is None
    assert draw_plan(OF_TRANSACTIONS).transactions is not None


def test_topics_are_what_a_remote_log_can_be_of():
    for plan in map(draw_plan, DRAWN):
        assert dict(plan.config)["remote.log.storage.system.enable"] == "true"
        assert not plan.alterations
        assert plan.diskless is None
        of_transactions = () if plan.transactions is None else plan.transactions.topics
        for topic in (*plan.topics, *of_transactions):
            configs = dict(topic.configs)
            assert configs["remote.storage.enable"] == "true"
            assert not topic.is_compacted
            if topic in of_transactions:
                assert (configs["retention.ms"], configs["retention.bytes"]) == ("-1", "-1")


SWITCHED = [seed for seed in range(30_000, 31_000) if has_switches(draw_plan(seed))]


def test_some_remote_logs_are_switched_off_and_on_again():
    assert SWITCHED and all(map(has_remote_logs, SWITCHED))
    seen = set()
    for plan in map(draw_plan, SWITCHED):
        of = {topic.name: dict(topic.configs) for topic in plan.topics}
        for each in plan.alterations:
            seen.add((each.name, each.value))
            own = of[each.topic]
            assert own["remote.log.delete.on.disable"] == "true"
            if each.name == "remote.log.copy.disable":  # local limits would be refused
                assert not any(name.startswith("local.") for name in own)
    names = ("remote.storage.enable", "remote.log.copy.disable")
    assert seen == {(name, value) for name in names for value in ("true", "false")}


def test_a_schedule_in_which_remote_logs_are_switched_off_is_clean():
    outcome = run_schedule(30_121)
    assert outcome.ok, outcome.sentence
    for mark in ("remote-ended", "remote-copied", "remote-removed"):
        assert outcome.marks[mark], mark


def test_each_fault_is_drawn():
    kinds = {fault.kind for seed in DRAWN for fault in draw_plan(seed).faults}
    assert {"objects-list-late", "crash-in-round", "pause-in-round", "coordinator-clock"} <= kinds
    drawn = {
        name for seed in DRAWN for topic in draw_plan(seed).topics for name, _ in topic.configs
    }
    assert {"local.retention.ms", "local.retention.bytes", "retention.bytes"} <= drawn
    assert {each.kind for seed in DRAWN for each in draw_plan(seed).operations} >= {"delete"}


@pytest.mark.parametrize("seed", [PLAIN, OF_TRANSACTIONS])
def test_a_schedule_with_remote_logs_is_clean(seed):
    outcome = run_schedule(seed)
    assert outcome.ok, outcome.sentence
    for mark in ("remote-copied", "remote-local-dropped", "remote-read"):
        assert outcome.marks[mark], mark


def test_the_same_seed_gives_the_same_run():
    assert run_schedule(PLAIN).digest == run_schedule(PLAIN).digest


@pytest.mark.parametrize("kind", ["crash-in-round", "pause-in-round"])
def test_a_broker_ends_or_stands_still_after_so_many_calls_of_its_rounds(kind):
    run = Run(draw_plan(PLAIN), Trace(keeps=False))
    run.cluster.start()
    run.world.run(3_000_000)
    node = run.cluster.nodes[1]
    node.remote_logs.bring([], lambda: None)
    faults = RemoteFaults(run.cluster, run.cluster.remotes)
    undo = faults.table()[kind](Fault(0, kind, 0, 0, 2, 0.9))
    calls = [node.remote_logs.fact("look", (b"t" * 16, 0)) for _ in range(3)]
    for number, call in enumerate(calls):
        assert node.state.value == "running", number
        node.remote_logs._make(call, lambda _: None)
        run.world.run(run.world.now_us)
    assert node.state.value == ("crashed" if kind.startswith("crash") else "paused")
    undo()
    assert node.state.value == "running"
    run.let_go()


def test_a_store_lists_late_until_it_is_healed():
    run = Run(draw_plan(PLAIN), Trace(keeps=False))
    objects = run.cluster.remotes.objects
    faults = RemoteFaults(run.cluster, run.cluster.remotes)
    told = []
    objects.on_put.clear()
    objects.put("node-1", "folder/one", [b"x"], told.append)
    run.world.run(1_000_000)
    undo = faults.table()["objects-list-late"](Fault(0, "objects-list-late", 0, 0, 0, 0.5))
    objects.list("node-1", "folder/", told.append)
    run.world.run(2_000_000)
    undo()
    objects.list("node-1", "folder/", told.append)
    run.world.run(3_000_000)
    assert told[1] == []
    assert [each.key for each in told[2]] == ["folder/one"]
    run.let_go()
