"""`anabranch rehearse`: what it prints, and how it says what is wrong with a file (B1)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from anabranch.cli.main import main
from anabranch.sim.rehearsal.answers import Condition


@pytest.fixture
def rehearse():
    def run(*words):
        return CliRunner().invoke(main, ["rehearse", *map(str, words)])

    return run


def test_the_shipped_ones_are_listed(rehearse):
    said = rehearse("--list")
    assert said.exit_code == 0
    assert "two-data-centres" in said.stdout
    told = json.loads(rehearse("--list", "--json").stdout)
    assert all(each["title"] and each["about"] and each["source"] for each in told)


def test_a_rehearsal_prints_the_answers(rehearse):
    said = rehearse("high-watermark")
    assert said.exit_code == 0, said.output
    for part in (
        "seed 1",
        "under-replicated",
        "Acknowledged records lost: 0",
        "Leaders moved: 0",
        "To copy: ",
        "Invariants: none broken",
        "“HW marks offset 4”: CONTRADICTED (high watermark: claimed 4, seen 5)",
        "Conclusions:",
    ):
        assert part in said.stdout


def test_the_answers_are_there_for_programs(rehearse):
    told = json.loads(rehearse("leader-crash", "--json", "--seed", "7").stdout)
    assert told["seed"] == 7
    assert told["records_lost"] == sum(len(each["offsets"]) for each in told["losses"])
    assert {"offline", "read_only", "under_replicated"} == set(told["conditions"])
    assert told["violation"] is None


def test_a_transcript_tells_it_step_by_step(rehearse):
    said = rehearse("high-watermark", "--transcript")
    assert "sees 0-4; the high watermark is 5" in said.stdout


def test_a_shipped_file_can_be_shown_changed_and_run(rehearse, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        rehearse("one-broker-lost", "--show").stdout.replace("length: 100s", "length: 70s")
    )
    assert rehearse(file).exit_code == 0


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (b"cluster: {brokers: 3}\ntopics: {orders: {replication: 4}}\n",
         "line 2, topics.orders.replication: 4 replicas need 4 brokers and the cluster has 3."),
        (b"cluster: [", "It is not YAML"),
        (b"", "It is empty."),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"a" * 300_000, "at most 256 KiB"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_rehearsal_is_told_so_in_one_line(rehearse, tmp_path, written, says):
    file = tmp_path / "bad.yaml"
    file.write_bytes(written)
    said = rehearse(file)
    assert said.exit_code == 1
    assert says in said.stderr
    assert "Traceback" not in said.output


def test_what_is_not_there_is_told_with_the_nearest_name(rehearse, tmp_path):
    assert "Did you mean `rack-loss`?" in rehearse("rack-los").stderr
    assert rehearse().exit_code == 2
    folder = rehearse(tmp_path)
    assert folder.exit_code == 1
    assert f"{tmp_path} cannot be read: Is a directory. Name a file" in folder.stderr


def test_a_cluster_that_cannot_become_ready_is_told_so(rehearse, tmp_path):
    file = tmp_path / "stuck.yaml"
    file.write_text(
        "cluster: {brokers: 3}\n"
        "topics: {orders: {settings: {max.message.bytes: 1}, retained: 1 GB}}\n"
    )
    said = rehearse(file)
    assert said.exit_code == 1
    assert "What orders retains cannot be written: " in said.stderr


PLAN = """
cluster: {brokers: 3}
topics: {orders: {replicas: [[1, 2, 3]]}}
events:
  - {at: 1s, send: {to: orders-0, records: 2, acks: all}}
"""


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text(PLAN)
    return path


PERFORMED = "anabranch.testing.rehearsal.stage.performed"


def test_real_processes_that_do_the_same_are_said_to(rehearse, plan_file, monkeypatch):
    monkeypatch.setattr(PERFORMED, lambda _plan, rehearsed: rehearsed)
    said = rehearse(plan_file, "--real")
    assert said.exit_code == 0 and said.stdout.endswith("As rehearsed.\n")
    assert said.stdout.startswith("orders-0\n") and "(rehearsed:" not in said.stdout
    told = json.loads(rehearse(plan_file, "--real", "--json").stdout)
    assert told["same"] is True and told["real"] == told["rehearsed"]
    assert told["real"]["events"][1]["event"] == EVENT


EVENT = "2 records are sent, acks=all"


def test_real_processes_that_do_otherwise_are_shown_beside_it(rehearse, plan_file, monkeypatch):
    monkeypatch.setattr(PERFORMED, lambda _plan, it: replace(it, rows=it.rows[:1]))
    said = rehearse(plan_file, "--real")
    assert said.exit_code == 1
    assert f"{EVENT}: the event: rehearsed {EVENT}; seen nothing" in unwrapped(said.stdout)
    told = json.loads(rehearse(plan_file, "--real", "--json").stdout)
    assert told["same"] is False
    assert [each["event"] for each in told["differences"]] == [EVENT]


def unwrapped(text):
    return " ".join(text.split())


def test_what_differs_is_said_event_by_event(rehearse, plan_file, monkeypatch):
    def otherwise(_plan, rehearsed):
        first, last = rehearsed.rows
        state = replace(last.state, leader=2, serves="reads")
        row = replace(last, state=state, lasted_us={Condition.OFFLINE: 1_300_000})
        return replace(rehearsed, rows=[first, row], lost=(1,))

    monkeypatch.setattr(PERFORMED, otherwise)
    said = rehearse(plan_file, "--real")
    assert said.exit_code == 1
    shown = unwrapped(said.stdout.partition("Otherwise than rehearsed:")[2])
    assert shown == (
        f"- {EVENT}: leader: rehearsed 1; seen 2 "
        f"- {EVENT}: served: rehearsed reads and writes; seen reads "
        "- at the end: offsets of acknowledged records lost: rehearsed none; seen 1"
    )
    assert "1.3 s (rehearsed: not)" in said.stdout
    told = json.loads(rehearse(plan_file, "--real", "--json").stdout)
    assert told["real"]["events"][1]["offline_seconds"] == 1.3 and told["real"]["lost"] == [1]


def test_what_processes_leave_out_is_said(rehearse, plan_file, monkeypatch):
    monkeypatch.setattr(PERFORMED, lambda _plan, rehearsed: rehearsed)
    plan_file.write_text(PLAN.replace("]]}", "]], produce: {acks: all}, retained: 1 GB}"))
    said = rehearse(plan_file, "--real")
    assert said.exit_code == 0
    assert said.stdout.startswith("Steady producers and retained bytes are ignored on processes.")


def test_what_real_processes_cannot_do_is_told_in_one_line(rehearse, plan_file):
    plan_file.write_text(PLAN.replace("brokers: 3", "brokers: 10"))
    said = rehearse(plan_file, "--real")
    assert said.exit_code == 1
    assert said.stderr == "Error: At most 9 brokers run as processes of one machine.\n"
