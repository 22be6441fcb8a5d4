"""The driver of chaos without a cluster: what is drawn, what logs say, what a report makes of it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from chaos.check import Verdict
from chaos.clients import Sender
from chaos.clients_ports import Token
from chaos.crowd import PARTS, Client, Crowd, Part
from chaos.faults import ACTS
from chaos.faults_settings import ALTERATIONS, taken_back
from chaos.history import Place, Writer, read_lines
from chaos.node_logs import TRUNCATION, NodeLogs
from chaos.plan import FAMILIES, draw_config, draw_round
from chaos.replicas import Comparison
from chaos.report import LEAST, PartReport, Report
from chaos.run import stores_of
from chaos.topics import TOPICS

from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.validation import (
    Resource,
    apply_operation,
    validate_broker_configs,
    validate_topic_configs,
)

ROOT = Path(__file__).resolve().parents[2]
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


def test_settings_are_altered_beside_a_round_and_change_nothing_else_of_it():
    rounds = [draw_round(1, 0, number, KINDS) for number in range(50)]
    others = [draw_round(1, 0, number, KINDS - {"alter"}) for number in range(50)]
    assert [[each for each in faults if each.kind != "alter"] for faults in rounds] == others
    assert rounds != others


@pytest.mark.parametrize("altered", ALTERATIONS, ids=str)
def test_each_alteration_is_right_and_can_be_taken_back(altered):
    broker, own = BrokerConfig.of(), dict(TOPICS[altered.topic].configs) if altered.topic else {}
    for each in (altered, taken_back(altered)):
        if each is None:
            continue
        kind = Resource.TOPIC if each.topic else Resource.BROKER
        values = apply_operation(kind, own, each.name, each.operation, each.value, broker)
        if each.topic:
            validate_topic_configs(values, broker)
        else:
            validate_broker_configs(values, per_broker=False)
    back = taken_back(altered)
    assert back is None or back.value == own.get(altered.name, "")


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
        file.write("2026-01-01T00:00:00.000Z WARNING own_faults: closing a connection why=x\n")
    logs.look()
    assert logs.truncations == 1
    assert logs.sentences == {
        "WARNING replication: a leader sleeps": 2,
        "WARNING own_faults: closing a connection": 1,
    }
    assert ["Traceback" in logs.bugs[0], "own_faults" in logs.bugs[1], len(logs.bugs)] == [
        True, True, 2
    ]  # fmt: skip


def test_a_node_that_a_full_disk_ends_is_no_bug_and_one_that_ends_otherwise_is(tmp_path):
    path = tmp_path / "broker-1.log"
    path.write_text("")
    logs = NodeLogs([path])
    line = '2026-01-01T00:00:00.000Z ERROR node: the node must stop why="{}"\n'
    copy = "the copy of the metadata log cannot be written: /d/0.log: "
    whys = [f"{copy}No space left on device", f"{copy}Input/output error", "the store went back"]
    path.write_text("".join(line.format(why) for why in whys))
    logs.look()
    assert ["Input" in logs.bugs[0], "went back" in logs.bugs[1], len(logs.bugs)] == [True, True, 2]


def test_a_run_removes_no_folder_of_somebody_else(tmp_path):
    (tmp_path / "precious").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "--folder", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "holds something that a run would remove" in done.stderr
    assert (tmp_path / "precious").exists()


class Hearing(Sender):
    """A producing process whose client tells what it is told to tell."""

    def __init__(self, path):
        named = argparse.Namespace(seed=1, name="p", topics="t", stuck_seconds=0)
        super().__init__(named, Writer(path, "p"))
        self.polled = []

    def poll(self, _seconds):
        for tell in self.polled:
            tell()
        self.polled.clear()


def test_an_acknowledgement_that_comes_late_is_of_the_life_that_sent_it(tmp_path):
    """kafka-python tells of outcomes on a thread of its own, after its close too."""
    sender = Hearing(tmp_path / "p.jsonl")
    place = Place("t", 0)
    sender.client, sender.open = "p.2", {place: 1}
    late, own = Token("p.1", place, 4), Token("p.2", place, 5)
    sender.polled += [lambda: sender._done(late, 4), lambda: sender._done(own, 5)]
    sender._listen(sender, 0)
    sender.writer.close()
    acks = [line for line in read_lines(tmp_path / "p.jsonl") if line["op"] == "ok"]
    assert [(line["client"], line["n"], line["count"]) for line in acks] == [
        ("p.1", 4, 1), ("p.2", 5, 1),
    ]  # fmt: skip
    assert sender.open == {place: 0}


def test_a_producer_that_is_told_nothing_of_one_partition_is_stuck(tmp_path):
    sender = Hearing(tmp_path / "p.jsonl")
    first, other = Place("t", 0), Place("t", 1)
    sender.client, sender.open = "p", {first: 2, other: 1}
    sender._silent_since = {first: 0.0, other: 0.0}
    assert not sender._is_stuck, "it was not asked to notice"
    sender.arguments.stuck_seconds = 6
    assert sender._is_stuck
    sender.polled += [lambda: sender._done(Token("p", first, 4), 4)]
    sender._listen(sender, 0)
    assert sender._is_stuck, "of the other partition it is told nothing"
    sender.polled += [lambda: sender._done(Token("p", other, 5), 0)]
    sender._listen(sender, 0)
    assert not sender._is_stuck
    sender.writer.close()


def test_a_client_that_two_faults_killed_is_replaced_once(tmp_path, monkeypatch):
    crowd = Crowd(tmp_path, 1, PARTS[:1])
    (client,) = crowd.clients
    codes = [-9, None]
    monkeypatch.setattr(Client, "code", property(lambda _self: codes[0]))
    started = []
    monkeypatch.setattr(client, "start", lambda: started.append(codes.pop(0)))
    crowd.replace(client)
    crowd.replace(client)
    assert started == [-9]


def test_a_client_that_has_just_been_started_ends_in_order_when_it_is_asked_to(tmp_path):
    """It could be told before it had learnt what SIGTERM means, and die of it."""
    crowd = Crowd(tmp_path, 1, [Part("m", "confluent", "member", "t", ("--group", "g"))])
    crowd.start("127.0.0.1:1")
    crowd.end("member")
    assert (crowd.surprises, crowd.remarks, crowd.clients[0].code) == ([], [], 0)


def clean_part(**changed):
    part = PartReport("sqlite", {})
    part.verdict.acks = LEAST["acks"]
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
        {"compared": Comparison(["a-0"])},
        {"surprises": ["a client ended"]},
        {"bugs": ["Traceback"]},
        {"verdict": Verdict()},
        {"verdict": Verdict(Counter({"lost": 1}), acks=1)},
        {"verdict": Verdict(acks=1, idle=["kafka-python reader"])},
    ):
        report = Report(1, "abc", [clean_part(), clean_part(**changed)])
        assert not report.is_clean, changed
        assert "ANOMALIES" in report.text()
        json.dumps(report.as_dict())
