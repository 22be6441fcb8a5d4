"""`anabranch rehearse`: what it prints, and how it says what is wrong with a file (B1)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from anabranch.cli.main import main
from anabranch.sim.rehearsal.orders import Turn, in_turns
from anabranch.sim.rehearsal.outcome import rehearsed


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
    assert {"offline", "read-only", "under-replicated"} == set(told["conditions"])
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


def test_real_processes_that_do_the_same_are_said_to(rehearse, plan_file, monkeypatch):
    monkeypatch.setattr("anabranch.testing.rehearsal.stage.performed", lambda _plan, told: told.met)
    said = rehearse(plan_file, "--real")
    assert said.exit_code == 0 and said.stdout.endswith("As rehearsed.\n")
    assert said.stdout.startswith("orders-0\n") and "0-1 acknowledged (acks=all)" in said.stdout
    assert json.loads(rehearse(plan_file, "--real", "--json").stdout)["same"] is True


def test_real_processes_that_do_otherwise_are_shown_beside_it(rehearse, plan_file, monkeypatch):
    def less(_plan, told):
        return replace(told.met, rows=told.met.rows[:1])

    monkeypatch.setattr("anabranch.testing.rehearsal.stage.performed", less)
    said = rehearse(plan_file, "--real")
    assert said.exit_code == 1
    event = "2 records are sent, acks=all"
    assert f"{event}: the event: rehearsed {event}; seen nothing" in unwrapped(said.stdout)
    told = json.loads(rehearse(plan_file, "--real", "--json").stdout)
    assert told["same"] is False and len(told["real"]) < len(told["rehearsed"])
    assert [each["event"] for each in told["differences"]] == [event]


def unwrapped(text):
    return " ".join(text.split())


def test_what_differs_is_said_event_by_event(rehearse, plan_file, monkeypatch):
    def otherwise(_plan, told):
        first, last = told.met.rows
        state = replace(last.state, logs=("2/2", "0/1", "2/2"), serves="reads")
        return replace(
            told.met, rows=[first, replace(last, state=state, cuts=["a cut"])], lost=(1,)
        )

    monkeypatch.setattr("anabranch.testing.rehearsal.stage.performed", otherwise)
    said = rehearse(plan_file, "--real")
    assert said.exit_code == 1
    event = "2 records are sent, acks=all"
    shown = unwrapped(said.stdout.partition("Otherwise than rehearsed:")[2])
    assert shown == (
        f"- {event}: broker 2: rehearsed 2/2; seen 0/1 "
        f"- {event}: served: rehearsed reads and writes; seen reads "
        f"- {event}: cuts: rehearsed nothing; seen a cut "
        "- at the end: offsets of acknowledged records lost: rehearsed nothing; seen 1"
    )


def test_replicas_that_join_one_after_another_may_do_so_in_either_order(
    rehearse, plan_file, monkeypatch
):
    def joined(order):
        def made(_plan, told):
            changes = [f"{each} into the ISR" for each in order]
            first, *others = told.met.rows
            return replace(told.met, rows=[replace(first, changes=changes), *others])

        return made

    shown = []
    for order in ((2, 3), (3, 2)):
        monkeypatch.setattr("anabranch.testing.rehearsal.stage.performed", joined(order))
        shown.append(rehearse(plan_file, "--real").stdout)
    assert shown[0] == shown[1]
    assert "changes: rehearsed nothing; seen 2 into the ISR; then 3 into" in unwrapped(shown[0])


def test_an_order_that_was_met_instead_is_said(rehearse, plan_file, monkeypatch):
    plan_file.write_text(PLAN + "  - {at: 2s, kill: [2, 3]}\n")

    def in_another_order(plan, told):
        other = rehearsed(in_turns(plan, {1: Turn((2, 3), (3_000_000,))}), plan)
        assert other.text() != told.met.text() and told.search(other.rows)
        return told.met

    monkeypatch.setattr("anabranch.testing.rehearsal.stage.performed", in_another_order)
    said = rehearse(plan_file, "--real")
    assert said.exit_code == 0, said.output
    order = "brokers 2,3 killed: 2, then 3"
    assert said.stdout.endswith(f"in another order within a moment: {order}.\nAs rehearsed.\n")
    assert json.loads(rehearse(plan_file, "--real", "--json").stdout)["order"] == order


def test_what_processes_leave_out_is_said(rehearse, plan_file, monkeypatch):
    monkeypatch.setattr("anabranch.testing.rehearsal.stage.performed", lambda _plan, told: told.met)
    plan_file.write_text(PLAN.replace("]]}", "]], produce: {acks: all}, retained: 1 GB}"))
    said = rehearse(plan_file, "--real")
    assert said.exit_code == 0
    assert said.stdout.startswith("Steady producers and retained bytes are ignored on processes.")


def test_what_real_processes_cannot_do_is_told_in_one_line(rehearse, plan_file):
    plan_file.write_text(PLAN.replace("brokers: 3", "brokers: 10"))
    said = rehearse(plan_file, "--real")
    assert said.exit_code == 1
    assert said.stderr == "Error: At most 9 brokers run as processes of one machine.\n"
