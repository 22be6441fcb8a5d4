"""The driver of chaos without a cluster: what is drawn, what logs say, what a report makes of it."""

from __future__ import annotations

from chaos.check import Verdict
from chaos.faults import ACTS
from chaos.node_logs import TRUNCATION, NodeLogs
from chaos.plan import FAMILIES, draw_config, draw_round
from chaos.report import LEAST, PartReport, Report
from chaos.run import stores_of

KINDS = frozenset(ACTS)


def test_a_seed_draws_the_same_faults_again():
    rounds = [draw_round(5, 0, number, KINDS) for number in range(50)]
    assert rounds == [draw_round(5, 0, number, KINDS) for number in range(50)]
    assert rounds != [draw_round(6, 0, number, KINDS) for number in range(50)]
    assert draw_config(5, 0) == draw_config(5, 0)
    assert all(faults == sorted(faults, key=lambda each: each.at_s) for faults in rounds)


def test_every_kind_that_can_be_drawn_can_be_done_and_is_drawn():
    assert {kind for kinds in FAMILIES.values() for kind in kinds} == KINDS
    drawn = {fault.kind for number in range(400) for fault in draw_round(1, 0, number, KINDS)}
    assert drawn == KINDS


def test_only_what_can_be_done_here_is_drawn():
    some = frozenset({"kill", "pause"})
    drawn = {fault.kind for number in range(50) for fault in draw_round(1, 0, number, some)}
    assert drawn == some


def test_a_long_run_has_both_stores_and_a_short_one_either():
    assert stores_of(1, 1800, "both") == [("sqlite", 1200), ("postgres", 600)]
    assert {stores_of(seed, 60, "both")[0][0] for seed in (0, 1)} == {"sqlite", "postgres"}
    assert stores_of(1, 1800, "sqlite") == [("sqlite", 1800)]


def test_the_logs_tell_truncations_and_faults_of_our_own(tmp_path):
    path = tmp_path / "broker-1.log"
    path.write_text("2026-01-01T00:00:00.000Z WARNING a: old\n")
    logs = NodeLogs([path])
    with path.open("a") as file:
        file.write(f"2026-01-01T00:00:00.000Z INFO replication: {TRUNCATION} partition=a-1\n")
        file.write("2026-01-01T00:00:00.000Z WARNING replication: a leader sleeps leader=1\n")
        file.write("2026-01-01T00:00:00.000Z WARNING replication: a leader sleeps leader=2\nTrace")
    logs.look()
    with path.open("a") as file:
        file.write("back (most recent call last):\n")
    logs.look()
    assert logs.truncations == 1
    assert logs.sentences == {"WARNING replication: a leader sleeps": 2}
    assert len(logs.bugs) == 1


def clean_part(**changed):
    part = PartReport("sqlite", {})
    part.take_verdict(Verdict(acks=LEAST["acks"]))
    part.elections, part.truncations, part.lease_changes = 50, 10, 5
    for name, value in changed.items():
        setattr(part, name, value)
    return part


def test_a_run_counts_when_it_reached_enough_and_is_clean_when_nothing_complains():
    report = Report(1, "abc", [clean_part()])
    assert report.is_clean
    assert not report.missing
    assert Report(1, "abc", [clean_part(elections=49)]).missing == {"elections": 49}
    assert report.as_dict()["counts"]
    assert "nothing lost" in report.text()


def test_whatever_must_not_be_is_an_anomaly():
    for changed in (
        {"unclean_elections": 1},
        {"differences": ["a-0"]},
        {"surprises": ["a client ended"]},
        {"bugs": ["Traceback"]},
        {"acks": 0},
        {"anomalies": {"lost": 1}},
    ):
        report = Report(1, "abc", [clean_part(), clean_part(**changed)])
        assert not report.is_clean, changed
        assert "ANOMALIES" in report.text()
