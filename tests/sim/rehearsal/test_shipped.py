"""Each shipped rehearsal answers its question, breaks nothing, and contradicts what is wrong (B1)."""

from __future__ import annotations

from functools import cache

import pytest

from anabranch.sim.rehearsal.answers import Answers, Condition, as_json
from anabranch.sim.rehearsal.library import names, text_of
from anabranch.sim.rehearsal.losses import ONLY_THE_LEADER, POWER, UNCLEAN_ELECTION
from anabranch.sim.rehearsal.rehearsal_file import read
from anabranch.sim.rehearsal.stage import run

CONTRADICTED = {
    "broker-restart": ["topic creation fails while a broker restarts"],
    "high-watermark": ["HW marks offset 4"],
    "two-data-centres": ["survive full DC loss"],
}
"""What is claimed somewhere and does not hold; every other claim does."""

LOST = {
    "leader-crash": {("clicks", 1, ONLY_THE_LEADER)},
    "power-loss-of-all": {("orders", -1, POWER)},
    "unclean-election": {("clickstream", -1, UNCLEAN_ELECTION)},
}
"""Topic, acks and rule of what is lost; nothing else is."""


@cache
def answers_of(name: str) -> Answers:
    return run(read(text_of(name) or "", f"{name}.yaml"))


def test_there_are_at_least_ten():
    assert len(names()) >= 10
    assert set(CONTRADICTED) | set(LOST) <= set(names())


@pytest.mark.parametrize("name", names())
def test_it_breaks_no_invariant_and_judges_its_claims(name):
    answers = answers_of(name)
    assert answers.violation == ""
    wrong = [each.claim.says for each in answers.verdicts if not each.holds]
    assert answers.verdicts
    assert wrong == CONTRADICTED.get(name, [])
    assert answers.lessons


@pytest.mark.parametrize("name", names())
def test_every_lost_record_has_the_rule_that_allowed_it(name):
    lost = {(loss.place[0], loss.acks, loss.rule) for loss in answers_of(name).losses}
    assert lost == LOST.get(name, set())


@pytest.mark.slow
def test_four_replicas_in_two_data_centres_stop_writing_when_one_is_lost():
    answers = answers_of("two-data-centres")
    assert len(answers.places(Condition.READ_ONLY)) == answers.partitions == 6
    assert answers.longest_us(Condition.READ_ONLY) > 40_000_000
    assert answers.records_lost == 0
    assert any("set min.insync.replicas=2" in sentence for sentence in answers.lessons)


def test_three_replicas_in_three_racks_go_on_when_one_is_lost():
    answers = answers_of("rack-loss")
    assert not answers.places(Condition.READ_ONLY)
    assert len(answers.places(Condition.UNDER_REPLICATED)) == 12


def test_an_empty_disk_costs_what_its_partitions_retain():
    answers = answers_of("rack-loss")
    partitions = 6  # of 12, with three replicas on six brokers
    assert answers.copied_bytes[4] == pytest.approx(partitions * 20 * 10**9, rel=0.01)
    assert answers.copied_bytes[3] < 10**9
    assert answers.copy_us == pytest.approx(answers.copied_bytes[4] / 100, rel=0.01)


def test_with_unclean_election_off_it_is_offline_until_somebody_who_was_in_sync_is_back():
    answers = answers_of("unclean-election")
    assert answers.longest_us(Condition.OFFLINE, "payments") > 45_000_000
    assert answers.longest_us(Condition.OFFLINE, "clickstream") < 15_000_000


def test_two_of_three_brokers_lost_is_read_only_and_loses_nothing():
    answers = answers_of("two-brokers-lost")
    assert len(answers.places(Condition.READ_ONLY)) == 6
    (writes,) = answers.writes
    assert writes.refused["NOT_ENOUGH_REPLICAS"] > 500


@pytest.mark.slow
def test_a_rolling_restart_moves_leaders_and_stops_nobody():
    answers = answers_of("rolling-restart")
    assert not answers.places(Condition.OFFLINE)
    assert not answers.places(Condition.READ_ONLY)
    assert len(answers.moves) >= 12


def test_a_broker_that_is_added_gets_its_share_and_one_that_is_drained_has_none():
    answers = answers_of("broker-added")
    assert answers.topics == {"orders": 8}
    assert answers.leaders[1] == 0
    assert answers.leaders[4] > 0
    (writes,) = answers.writes
    assert writes.acknowledged > 2_000


def test_a_rack_that_goes_takes_its_replicas_after_the_threshold_and_one_that_blinks_none():
    gone = answers_of("rack-goes-for-good")
    blinked = answers_of("rack-blinks")
    assert gone.longest_us(Condition.UNDER_REPLICATED) > 10_000_000
    assert not gone.at_end(Condition.UNDER_REPLICATED)
    assert gone.leaders[3] == 0
    assert 9_000_000 < blinked.longest_us(Condition.UNDER_REPLICATED) < 12_000_000
    assert not blinked.at_end(Condition.UNDER_REPLICATED)


def test_topics_are_placed_by_the_placer_that_the_cluster_names():
    text = "cluster: {brokers: 5, settings: {replica.placer.class.name: computed}}\ntopics: {t: %s}"
    plan = read(text % "{partitions: 9}", "x")
    assert plan.topics[0].replicas[0] == (1, 2, 3)
    assert plan.topics[0].replicas[8] == (4, 1, 2)
    other = "{partitions: 9, settings: {replica.placer.class.name: spread}}"
    rows = read(text % other, "x").topics[0].replicas
    assert sorted(row[0] for row in rows).count(1) in (1, 2)
    assert rows != plan.topics[0].replicas


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answers():
    plan = read(text_of("leader-crash") or "", "x")
    assert as_json(run(plan)) == as_json(run(plan))
